for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column], number = Number(cell.dataset.value ?? NaN);
    return cell.classList.contains("number") ? number : cell.textContent;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("number");
      const up = head.getAttribute("aria-sort") === (numeric ? "descending" : null);
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = (a, b) => {
        const x = value(a, column), y = value(b, column);
        if (!numeric) return (up ? 1 : -1) * x.localeCompare(y);
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // what was not measured stays last
        return up ? x - y : y - x;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}

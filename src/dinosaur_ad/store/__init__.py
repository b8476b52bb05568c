"""What is on disk: one safe, versioned, undoable folder per task.

::

    STORE/store.json                      format name and version, and the header its owner gave
    STORE/tasks/NAME/task.json            the pointer: current version, those undo goes back to, history
    STORE/tasks/NAME/v0003/manifest.json  what the detector wants to know; size and sha256 of each array file
    STORE/tasks/NAME/v0003/bank.safetensors
    STORE/tasks/NAME/forgotten.json       the pointer of a task that was forgotten by giving it this name
    STORE/.lock, STORE/.writer            one writer at a time; .writer says who and what, and stays after a crash
    STORE/.locks/NAME.lock                held while a task is being taught
    STORE/watch/                          what a watch has seen; not the store's own, see dinosaur_ad.watch.tray

**A change is one rename.** A version folder is written and synced before the pointer names it, and never
changed afterwards; replacing ``task.json`` is the moment at which the change happens. A crash leaves files
that no pointer names: readers never look at them and the next writer removes them.

**Readers take no lock.** A version folder never changes, so a reader gets one version whole. The last few are
kept for undo and redo; reading one that was removed raises an error, and the reader takes a new snapshot.

**Renaming a task is renaming its folder**: no file in it names the task.

**Nothing that is read is trusted.** Documents carry a hash of their own bytes, a pointer that of the manifest,
a manifest those of the array files, and each is checked when it is read. What a document may hold is one table.
Links are not followed, and only plain files are opened. Nothing is removed but what the store itself has
written, by name.

To read the code, begin with :mod:`~dinosaur_ad.store.versions` (what a change is), then
:mod:`~dinosaur_ad.store.task_store` (how it is made) and :mod:`~dinosaur_ad.store.reading` (how it is seen);
:mod:`~dinosaur_ad.store.documents` has the table, :mod:`~dinosaur_ad.store.mending` what is done after damage and
crashes.
"""

from dinosaur_ad.store.names import check_task_name
from dinosaur_ad.store.reading import Snapshot
from dinosaur_ad.store.store import MemoryStore, Store
from dinosaur_ad.store.task_store import TaskStore, copy_tasks
from dinosaur_ad.store.versions import StoredFile, TaskRecord

__all__ = ["MemoryStore", "Snapshot", "Store", "StoredFile", "TaskRecord", "TaskStore", "check_task_name", "copy_tasks"]

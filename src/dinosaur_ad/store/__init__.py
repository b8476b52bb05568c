"""What is on disk: one safe, versioned, undoable folder per task.

::

    STORE/store.json                      format name and version, and the header its owner gave
    STORE/tasks/NAME/task.json            the pointer: current version, those undo goes back to, history
    STORE/tasks/NAME/v0003/manifest.json  what the detector wants to know; size and sha256 of each array file
    STORE/tasks/NAME/v0003/bank.safetensors
    STORE/.lock, STORE/.writer            one writer at a time; .writer says who, and stays after a crash

**A change is one rename.** A version folder is written and synced before the pointer names it, and never
changed afterwards; replacing ``task.json`` is the moment at which the change happens. A crash leaves files
that no pointer names: readers never look at them and the next writer removes them.

**Readers take no lock.** A version folder never changes, so a reader gets one version whole. The last few are
kept for undo; when a folder goes at last, a POSIX system keeps the data of a mapped file until the map is
closed (Windows refuses to remove it, and a later writer tries again).

To read the code, begin with :mod:`~dinosaur_ad.store.versions` (what a change is), then
:mod:`~dinosaur_ad.store.tasks` (how it is made) and :mod:`~dinosaur_ad.store.reading` (how it is seen).
"""

from dinosaur_ad.store.names import check_task_name
from dinosaur_ad.store.reading import Snapshot
from dinosaur_ad.store.records import FileInfo, TaskRecord
from dinosaur_ad.store.store import MemoryStore, Store
from dinosaur_ad.store.tasks import TaskStore, copy_tasks

__all__ = ["FileInfo", "MemoryStore", "Snapshot", "Store", "TaskRecord", "TaskStore", "check_task_name", "copy_tasks"]

"""A disk that can crash: records what a program writes, and rebuilds every state that a crash may leave.

What a program has written reaches the disk when it is synced, and at any earlier moment or never otherwise. Between two
operations (a sync, a rename, a removal, a new folder) three states are the extremes of what a crash may leave:

    everything    all of it has reached the disk; the program was killed
    no content    names and folders have, content that was not synced has not: such a file is cut in half
    only synced   nothing has but what was synced: content by syncing the file, names by syncing their folder
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tree = dict[str, bytes | None]
"""Content of every file by its relative path; None for a folder."""


@dataclass
class Disk:
    """A folder whose writes are recorded.

    ``states`` holds a name, the number of completed ``marks``, and the tree for every state that a crash may leave.
    """

    root: Path
    states: list[tuple[str, int, Tree]] = field(default_factory=list)
    marks: int = 0
    operations: list[str] = field(default_factory=list)
    identities: dict[int, int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    """Synced content of every file, by its identity."""
    entries: dict[int, dict[str, int]] = field(default_factory=dict)
    """Synced entries of every folder, by its identity."""
    next_identity: int = 0

    def identity(self, path: Path) -> int:
        """Return a number for a file or folder that is never used again, unlike that of an inode."""
        inode = path.stat().st_ino
        if inode not in self.identities:
            self.identities[inode] = self.next_identity
            self.next_identity += 1
        return self.identities[inode]

    def start(self) -> None:
        """Take everything that exists as synced."""
        for path in [self.root, *self.root.rglob("*")]:
            self.sync(path)

    def sync(self, path: Path) -> None:
        if path.is_dir():
            self.entries[self.identity(path)] = {entry.name: self.identity(entry) for entry in path.iterdir()}
        else:
            self.contents[self.identity(path)] = path.read_bytes()

    def forget_removed(self) -> None:
        live = {path.stat().st_ino for path in [self.root, *self.root.rglob("*")]}
        self.identities = {inode: identity for inode, identity in self.identities.items() if inode in live}

    def record(self, operation: str) -> None:
        """Add the states that a crash at this moment may leave."""
        everything: Tree = {}
        no_content: Tree = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            everything[name] = no_content[name] = None if path.is_dir() else path.read_bytes()
            if path.is_file() and (synced := self.contents.get(self.identity(path), b"")) != everything[name]:
                content = path.read_bytes()
                grown = content.startswith(synced)
                no_content[name] = (
                    content[: len(synced) + (len(content) - len(synced)) // 2]
                    if grown
                    else content[: len(content) // 2]
                )
        only_synced: Tree = {}
        self.add_synced(self.identity(self.root), "", only_synced)
        trees = {"everything": everything, "no content": no_content, "only synced": only_synced}
        self.states += [(f"{kind}, {operation}", self.marks, tree) for kind, tree in trees.items()]

    def add_synced(self, folder: int, prefix: str, tree: Tree) -> None:
        for name, identity in self.entries.get(folder, {}).items():
            if identity in self.folders:
                tree[prefix + name] = None
                self.add_synced(identity, f"{prefix}{name}/", tree)
            else:
                tree[prefix + name] = self.contents.get(identity, b"")

    @property
    def folders(self) -> set[int]:
        return {
            self.identity(path) for path in [self.root, *self.root.rglob("*")] if path.is_dir()
        } | self.entries.keys()

    def mark(self) -> None:
        """Say that something is done, which no later crash may undo."""
        self.marks += 1
        self.record("done")


@contextmanager
def recorded(root: Path, monkeypatch: Any) -> Iterator[Disk]:
    """Record the operations of this process below a folder."""
    disk = Disk(root)
    disk.start()

    def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            target = arguments[0]
            path = Path(os.readlink(f"/proc/self/fd/{target}")) if isinstance(target, int) else Path(target)
            if not path.is_relative_to(root):
                return original(*arguments, **options)
            described = f"{name} {path.relative_to(root)}"
            disk.record(f"before {described}")
            result = original(*arguments, **options)
            if name == "fsync":
                disk.sync(path)
            disk.forget_removed()
            disk.operations.append(described)
            disk.record(f"after {described}")
            return result

        return operation

    with monkeypatch.context() as patch:
        for module, names in ((os, ("fsync", "replace", "rename", "unlink", "mkdir")), (shutil, ("rmtree",))):
            for name in names:
                patch.setattr(module, name, wrap(name, getattr(module, name)))
        yield disk


def write_tree(tree: Tree, folder: Path) -> Path:
    """Write a state of a disk to a new folder."""
    for name, content in sorted(tree.items()):
        if content is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder

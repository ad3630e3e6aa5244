"""Hostile changes of valid files; a change depends on its random generator alone."""

import json
import os
import struct
from pathlib import Path
from random import Random
from typing import Any

Files = dict[str, bytes]
"""Content of the files of a folder, by relative path."""

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e30, 1e308, float("inf"), float("nan"), 7, 1000, 10**6, 2**28,
    10**9, 2**31, 2**63, 10**30, 10**400, "", "x", "nan", "../../x", "/tmp/x", ".", "..", "a/b", "a\\b", "\0",
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "\u202ereversed", "[/x]", "[bold]", "[link=file:///x]y[/link]",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a|b", "\n", "line\nline", "a" * 10_000, "\ud800", [],
    {}, [[]], [1, 2], ["x"], [None], {"a": 1}, {"class": "DeepSets"}, {"class": "DeepSets", "arguments": {}},
    {"class": "PicasoPool", "arguments": {"dim": 10**9}}, [0.0] * 1000, ["x"] * 300, {"pairs": [[1, 2, 3]]},
]  # fmt: skip
TOKENS = [
    b"", b"\0", b"\xff", b"\xff\xfe", b"\x1b[31m", b"\x1b]0;x\x07", b"[/x]", b"<b>", b"|", b'"', b"{", b"}", b"[" * 200,
    b"]", b",", b":", b"-", b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"\\ud800", b"\r", b"\n", b" ", b"../x",
    b"PK\x03\x04", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"\x7f\xff\xff\xff", b"\xff" * 8, b"\x00\x00\xc0\x7f",
    b"\x00\x00\x80\x7f", b"\xef\xbb\xbf", b"'", b";", b"\t", b"nan", b"inf", b"-1", b"True", b"None", b"(", b"PAR1",
    b"\x80\x00\x00\x00", b"2021-01-01", b"1,234", "é".encode(), "é".encode("cp1252"),
]  # fmt: skip
CELLS = [
    "", " ", "nan", "NA", "inf", "-inf", "1e308", "-1e308", "1e999", "1e-320", "0", "-0.0", "1", "1e6", "1e30",
    "9" * 30, "x", "True", "2021-01-01", "12:30", "1,5", '"1,234"', '"', '"a\nb"', "é", "a" * 5000, "\x1b[31m",
    "\x9b2J", "[/x]", "[bold]", "<script>alert(1)</script>", "\u202ereversed", "\0", "=1+1", "../../x", "set", "label",
    "x,y", "1;2", "\t",
]  # fmt: skip
DEEP = b"[" * 100_000 + b"]" * 100_000


def mutate(files: Files, random: Random) -> Files:
    """Return the files with one of them changed, sometimes two."""
    files = dict(files)
    for _ in range(1 if random.random() < 0.8 else 2):
        kind = random.choice(sorted({Path(name).name for name in files}))
        name = random.choice(sorted(name for name in files if Path(name).name == kind))
        files[name] = mutate_file(name, files[name], random)
    return files


def mutate_file(name: str, content: bytes, random: Random) -> bytes:
    chance = random.random()
    suffix = Path(name).suffix
    if chance < 0.02:
        return random.choice([b"", b"{}", b"[]", b"null", b"\0" * 100, content[:-1], content * 2, DEEP])
    try:
        if suffix == ".json" and chance < 0.75:
            return json.dumps(mutate_json(json.loads(content), random)).encode()
        if suffix == ".jsonl" and chance < 0.75:
            lines = content.splitlines()
            index = random.randrange(len(lines))
            lines[index] = json.dumps(mutate_json(json.loads(lines[index]), random)).encode()
            return b"\n".join(lines) + b"\n"
        if suffix == ".safetensors" and chance < 0.7:
            return mutate_safetensors(content, random)
        if suffix == ".csv" and chance < 0.7:
            return mutate_cells(content, random)
    except (ValueError, IndexError, RecursionError, struct.error):  # an earlier mutation has left no JSON
        pass
    return mutate_bytes(content, random)


def mutate_json(value: Any, random: Random) -> Any:
    """Change one place of a JSON value, or a few: another value, a missing, added or renamed key, another length."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        holder, key = choose_place([value], random)
        value = change_place(holder, key, random) if holder is None else value
        if holder is not None:
            change_place(holder, key, random)
    return value


def choose_place(root: list[Any], random: Random) -> tuple[Any, Any]:
    """Walk down to a random place; return its container and its key."""
    holder, key = root, 0
    while True:
        value = holder[key]
        if not isinstance(value, dict | list) or not value or random.random() < 0.15:
            return (
                (holder, key) if holder is not root else (value, None) if isinstance(value, dict | list) else (None, 0)
            )
        holder, key = value, random.choice(list(value) if isinstance(value, dict) else range(len(value)))


def change_place(holder: Any, key: Any, random: Random) -> Any:
    value = random.choice(VALUES)
    if holder is None:
        return value
    if key is None or (isinstance(holder, dict) and random.random() < 0.1):
        if isinstance(holder, dict):
            holder[random.choice(["x", "\x1b[31m", "[/x]", "step", "class", "format", "arguments"])] = value
        else:
            holder.append(value)
        return None
    action, old = random.random(), holder[key]
    if action < 0.15:
        del holder[key]
    elif action < 0.25 and isinstance(holder, list):
        holder.insert(key, value)
    elif action < 0.25:
        holder[str(random.choice(["", "x", key + " ", key.upper(), "\x1b[31m"]))] = holder.pop(key)
    elif action < 0.4 and isinstance(old, int | float) and not isinstance(old, bool) and abs(old) < 1e100:
        holder[key] = random.choice([-old, old + 1, old * 10, old * 1e9, str(old), [old], float(old), old * 10**6])
    elif action < 0.45 and isinstance(old, list):
        holder[key] = old[: random.randrange(len(old) + 1)] * random.choice([1, 2, 100])
    else:
        holder[key] = value
    return None


def mutate_safetensors(content: bytes, random: Random) -> bytes:
    """Change the header of a safetensors file, with a right or a wrong length, or its numbers."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    if random.random() < 0.4:  # numbers: single values become NaN, infinite, huge or noise
        position = random.randrange(max(len(data) - 8, 1))
        position -= position % 4
        number = random.choice([b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", random.randbytes(4)])
        return content[: 8 + length] + data[:position] + number + data[position + 4 :]
    described = json.loads(header)
    inner = described.get("__metadata__") if isinstance(described, dict) else None
    texts = sorted(name for name, text in inner.items() if isinstance(text, str)) if isinstance(inner, dict) else []
    if texts and random.random() < 0.7:  # JSON within the JSON
        name = random.choice(texts)
        inner[name] = json.dumps(mutate_json(json.loads(inner[name]), random))
    else:
        described = mutate_json(described, random)
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    size = len(text) if random.random() < 0.9 else random.choice([0, 1, len(text) - 1, 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", size) + text + data


def mutate_cells(content: bytes, random: Random) -> bytes:
    """Change cells, rows or columns of a table: other values, all values alike, missing, repeated and added ones."""
    rows = [line.split(",") for line in content.decode("utf-8").splitlines()]
    for _ in range(random.choice([1, 1, 2, 4, 8])):
        row, action, cell = random.randrange(len(rows)), random.random(), random.choice(CELLS)
        column = random.randrange(len(rows[row]))
        if action < 0.45:
            rows[row][column] = cell
        elif action < 0.6:  # a column of one value, below its name
            for other in rows[random.choice([0, 1]) :]:
                other[column % len(other)] = cell
        elif action < 0.7:  # another name, sometimes one that exists
            rows[0][column % len(rows[0])] = random.choice([cell, random.choice(rows[0])])
        elif action < 0.72:
            del rows[row if len(rows) > 1 else 0][column:]
            rows[row] = rows[row] or [cell]
        elif action < 0.79:
            rows[row:row] = [list(rows[row]) for _ in range(random.choice([1, 2, 300]))]
        elif action < 0.85:
            rows = rows[: row + 1]
        elif action < 0.94:
            for other in rows:
                other += [cell] * random.choice([1, 1, 1, 40])
        else:
            for other in rows:
                other[column % len(other)] = str(random.choice([random.gauss(0, 1), random.gauss(1e6, 1), 1e200]))
    return "\n".join(",".join(row) for row in rows).encode() + random.choice([b"\n", b"\n", b""])


def mutate_bytes(content: bytes, random: Random) -> bytes:
    """Overwrite, insert, remove, repeat or cut off a few bytes."""
    keeps_length = random.random() < 0.3  # so that offsets stay valid and the mutation reaches what they lead to
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(content) + 1)
        if random.random() < 0.3:
            start = min(start, random.randrange(300))
        stop = min(start + random.choice([0, 1, 2, 4, 8, 40]), len(content))
        action = random.choice([0, 4]) if keeps_length else random.randrange(6)
        if action == 0:
            content = content[:start] + random.randbytes(stop - start) + content[stop:]
        elif action == 1:
            content = content[:start] + random.choice(TOKENS) + content[stop:]
        elif action == 2:
            content = content[:start] + content[start:stop] * random.choice([2, 3, 50]) + content[stop:]
        elif action == 3:
            content = content[:start] + content[stop:]
        elif action == 4 and start < len(content):
            content = content[:start] + bytes([content[start] ^ 1 << random.randrange(8)]) + content[start + 1 :]
        elif random.random() < 0.2:
            content = content[:start]
    return content


def write_files(folder: Path, files: Files, random: Random, outside: Path) -> None:
    """Write the files; rarely one is missing, a folder, a pipe or a symbolic link, and rarely a folder is a link."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        chance = random.random()
        if chance < 0.004:
            continue
        if chance < 0.006:
            path.mkdir()
        elif chance < 0.008:
            os.mkfifo(path)  # one that nobody writes to: to open it would take forever
        elif chance < 0.012:
            path.symlink_to(outside / random.choice(["file", "folder", "absent"]))
        else:
            path.write_bytes(content)
    # A link that leads to the run, or to the folder of all runs, is one that the user has named.
    named = (folder / "runs", folder / "runs/one")
    folders = sorted(path for path in folder.rglob("*") if path.is_dir() and path not in named)
    folders = [path for path in folders if not path.is_symlink()]
    if folders and random.random() < 0.02:
        chosen = random.choice(folders)
        chosen.rename(outside / "moved")
        chosen.symlink_to(outside / "moved")

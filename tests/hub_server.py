"""A small stand-in for the Hugging Face Hub: repositories with revisions, kept in memory and served over HTTP."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

PULL_REQUEST = {
    "num": 1, "title": "", "author": {"name": "somebody"}, "createdAt": "2026-11-01T00:00:00.000Z", "status": "draft",
    "repo": {"name": "somebody/pool", "type": "model"}, "isPullRequest": True, "changes": {"base": "refs/heads/main"},
    "events": [], "filesWithConflicts": [], "diff": "", "mergeCommitId": None,
}  # fmt: skip


class Repositories:
    """Commits of every repository by their hash, and branches."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.branches: dict[str, dict[str, str]] = {}

    def create(self, name: str) -> None:
        if name not in self.commits:
            self.commits[name], self.branches[name] = {}, {}
            self.commit(name, "main", {})

    def commit(self, name: str, branch: str, files: dict[str, bytes]) -> str:
        before = self.commits[name].get(self.branches[name].get(branch, ""), {})
        digest = hashlib.sha1(f"{name} {branch} {len(self.commits[name])}".encode()).hexdigest()
        self.commits[name][digest] = {**before, **files}
        self.branches[name][branch] = digest
        return digest

    def resolve(self, name: str, revision: str) -> str | None:
        digest = self.branches.get(name, {}).get(revision, revision)
        return digest if digest in self.commits.get(name, {}) else None


@contextmanager
def local_hub(monkeypatch: pytest.MonkeyPatch, cache: str) -> Iterator[Repositories]:
    """Serve repositories at an address that ``huggingface_hub`` takes for the Hub."""
    from huggingface_hub import constants

    repositories = Repositories()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

        def answer(self, body: object = None, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def missing(self, code: str) -> None:
            self.answer({"error": code}, status=404, headers={"X-Error-Code": code, "X-Error-Message": code})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
            if parts[:3] == ["api", "repos", "create"]:
                request = json.loads(body)
                name = f"{request['organization']}/{request['name']}"
                repositories.create(name)
                self.answer({"url": f"{address}/{name}"})
                return
            if parts == ["api", "validate-yaml"]:
                self.answer({"errors": [], "warnings": []})
                return
            if parts[4] == "discussions":  # a pull request, or a change of its status
                name = "/".join(parts[2:4])
                repositories.branches[name].setdefault("refs/pr/1", repositories.branches[name]["main"])
                self.answer({"num": 1, "newStatus": "open"})
                return
            name, action, branch = "/".join(parts[2:4]), parts[4], parts[5]
            if action == "branch":
                repositories.branches[name].setdefault(branch, repositories.branches[name]["main"])
                self.answer({})
            elif action == "preupload":
                paths = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
                self.answer({"files": modes})
            elif action == "commit":
                lines = [json.loads(line) for line in body.splitlines()]
                files = {
                    line["value"]["path"]: base64.b64decode(line["value"]["content"])
                    for line in lines
                    if line["key"] == "file"
                }
                digest = repositories.commit(name, branch, files)
                self.answer({"commitUrl": f"{address}/{name}/commit/{digest}", "commitOid": digest})

        def do_GET(self) -> None:
            parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
            if parts[0] == "api":
                name, revision = "/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main"
            else:
                name, revision = "/".join(parts[:2]), parts[3]
            if name not in repositories.commits:
                self.missing("RepoNotFound")
                return
            if parts[0] == "api" and parts[4:5] == ["discussions"]:
                self.answer(PULL_REQUEST)
                return
            digest = repositories.resolve(name, revision)
            if digest is None:
                self.missing("RevisionNotFound")
                return
            files = repositories.commits[name][digest]
            if parts[0] == "api" and parts[4:5] == ["tree"]:
                entries = {path: hashlib.sha1(content).hexdigest() for path, content in files.items()}
                self.answer(
                    [
                        {"type": "file", "path": path, "size": len(files[path]), "oid": oid}
                        for path, oid in entries.items()
                    ]
                )
            elif parts[0] == "api":
                self.answer({"id": name, "sha": digest, "siblings": [{"rfilename": path} for path in files]})
            elif "/".join(parts[4:]) not in files:
                self.missing("EntryNotFound")
            else:
                content = files["/".join(parts[4:])]
                etag = hashlib.sha1(content).hexdigest()
                self.answer(content, headers={"ETag": f'"{etag}"', "X-Repo-Commit": digest})

        do_HEAD = do_GET  # noqa: N815 - the name that the server calls

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield repositories
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

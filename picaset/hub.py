"""Networks on the Hugging Face Hub: download by name and revision, upload with a model card.

The methods that use this, ``from_pretrained`` and ``push_to_hub``, have the names and the main arguments of
``huggingface_hub.ModelHubMixin``, by the same names. Inheriting from it would make ``huggingface_hub`` a dependency of
every pool.
"""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from picaset.extras import require

FILES = ("config.json", "model.safetensors")
"""Files of a network; nothing else is downloaded."""


def is_hub_name(source: str) -> bool:
    """Return whether a text can be the name of a repository, such as ``org/name``, and is not a local path."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", source) is not None and not Path(source).exists()


class Download(TypedDict, total=False):
    """How a repository is downloaded; the arguments are those of ``huggingface_hub.snapshot_download``."""

    revision: str | None
    token: str | bool | None
    cache_dir: str | Path | None
    local_files_only: bool
    force_download: bool


def download(name: str, **options: Unpack[Download]) -> Path:
    """Download the files of a network, or find them in the cache, and return their folder."""
    hub = cast(Any, require("huggingface_hub", extra="hub", purpose=f"there is no folder {name}; loading it by name"))
    unreachable = (
        "the Hub cannot be reached, and the files are not in the cache. Check the connection, or pass a folder."
    )
    if options.get("local_files_only"):
        unreachable = "the files are not in the cache, and local_files_only forbids to ask the Hub."
    with readable_errors(f"{name} is not a folder, and could not be loaded from the Hub", unreachable=unreachable):
        return Path(hub.HfApi().snapshot_download(name, **options, allow_patterns=list(FILES)))


def upload(
    folder: Path,
    name: str,
    *,
    card: str,
    commit_message: str,
    private: bool | None,
    token: str | None,
    branch: str | None,
    create_pr: bool | None,
) -> str:
    """Upload a folder, with a model card unless the repository has one, and return the address of the commit."""
    hub = cast(Any, require("huggingface_hub", extra="hub", purpose="pushing to the Hub"))
    api = hub.HfApi(token=token)
    unreachable = "the Hub cannot be reached. Check the connection."
    with readable_errors(f"{name} could not be pushed to the Hub", unreachable=unreachable):
        api.create_repo(name, private=private, exist_ok=True)
        if branch is not None:
            api.create_branch(name, branch=branch, exist_ok=True)
        if not api.file_exists(name, "README.md", revision=branch):
            (folder / "README.md").write_text(card)
        commit = api.upload_folder(
            repo_id=name, folder_path=folder, commit_message=commit_message, revision=branch, create_pr=create_pr
        )
    return str(commit.commit_url)


@contextmanager
def readable_errors(problem: str, *, unreachable: str) -> Generator[None]:
    """Turn the errors of the client, the network and the server into one line."""
    errors = cast(Any, require("huggingface_hub.errors", extra="hub", purpose="the Hub"))
    try:
        yield
    except errors.RepositoryNotFoundError as error:
        raise OSError(f"{problem}: there is no such repository, or it is private and needs a token.") from error
    except errors.RevisionNotFoundError as error:
        raise OSError(f"{problem}: it has no such revision.") from error
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        raise OSError(f"{problem}: {str(error).splitlines()[0]}") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HTTPError) as error:
        raise OSError(f"{problem}: {unreachable}") from error


def model_card(class_name: str, module: str, arguments: dict[str, Any], *, name: str, num_parameters: int) -> str:
    """Return a model card: metadata, what the repository holds, and how to load it."""
    described = json.dumps(arguments, indent=2)
    return f"""---
library_name: picaset
tags: [picaset, sets, {class_name}]
---

# {name}

A `{class_name}` of [picaset](https://pypi.org/project/picaset/) with {num_parameters:,} parameters, a PyTorch module
on sets of vectors. Files: `config.json` (class and constructor arguments) and `model.safetensors` (weights).

```python
from {module} import {class_name}

module = {class_name}.from_pretrained("{name}")
output = module(elements, mask)  # elements (B, N, D), mask (B, N): True where an element is present
```

Constructor arguments:

```json
{described}
```

What it was trained on, for which purpose, and how well it works: to be written here.
"""

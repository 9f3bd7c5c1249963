"""The folder of the files that come with the workflow: its resources, notebooks, templates and settings."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from git import Repo
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile, SourceFile

from afa.errors import Fault, ResourceError
from afa.files import atomic_folder


def workflow_folder(rules: SourceFile, state: str | Path) -> Path:
    """The folder of a workflow whose files of rules lie in `rules`, as Snakemake names it.

    Snakemake reads the rules of a workflow in a git repository one by one and has no folder of it. Then its whole
    commit is unpacked, once, into a folder of `state` that is named by the commit.

    Parameters
    ----------
    rules : `<folder>/workflow/rules`, where it is local, in a repository on this machine or with a hosting provider.
    state : `.snakemake` of the run.

    Raises
    ------
    ResourceError : rules from anywhere else, such as a web address.

    """
    if isinstance(rules, LocalSourceFile):
        return Path(rules.get_path_or_uri(secret_free=True)).parents[1]
    if isinstance(rules, HostingProviderFile):
        repository = rules.hosted_repo.repo
    elif isinstance(rules, LocalGitFile):
        repository = Repo(rules.repo_path)
    else:
        step = "name the workflow by a path, or by github() or gitlab() with a tag"
        raise ResourceError(Fault(str(rules), "rules that come one by one", "a folder or a git repository", step))
    commit = repository.commit(rules.ref).hexsha
    folder = Path(state) / f"afa-{commit[:12]}"
    if not folder.exists():
        packed = io.BytesIO()
        repository.archive(packed, treeish=commit)
        packed.seek(0)
        with atomic_folder(folder) as unpacked, tarfile.open(fileobj=packed) as archive:
            archive.extractall(unpacked, filter="data")
    return folder

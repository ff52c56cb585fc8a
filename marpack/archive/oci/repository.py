"""Manifests of one repository: asked for, put, and those that refer to others (OCI distribution 1.1)."""

import re
from http import HTTPStatus
from urllib.parse import urljoin

from msgspec import Struct

from marpack.archive.oci.manifests import (
    ACCEPTED,
    LIST_TYPE,
    MAX_MANIFEST,
    NO_REFERRERS,
    Descriptor,
    Digest,
    ImageManifest,
    ReferrerList,
    archive_layer,
    digest_of_bytes,
    encoded,
    entries_of,
    read_list,
    read_manifest,
    with_entry,
)
from marpack.archive.oci.session import LIES, RegistrySession
from marpack.errors import DamagedArchiveError, RegistryError

_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_MAX_PAGES = 16
_OWN_DIGEST = "Docker-Content-Digest"


class RemoteArchive(Struct, frozen=True):
    """An archive in a registry, by digests from here on: what its tag stands for later changes nothing."""

    digest: str  # of the manifest
    manifest: ImageManifest
    layer: Descriptor  # of the archive's bytes


def find_archive(session: RegistrySession) -> RemoteArchive:
    """Ask what the session's reference stands for.

    Raises RegistryError, NotAnArchiveError for anything but an archive, DamagedArchiveError for other bytes than those
    asked for.
    """
    where = str(session.reference)
    data = manifest_bytes(session, session.reference.name)
    manifest = read_manifest(data, where)
    return RemoteArchive(digest_of_bytes(data), manifest, archive_layer(manifest, where))


def manifest_bytes(session: RegistrySession, name: str) -> bytes:
    """Return the manifest of a tag or a digest, the bytes as they came, which are held against the digest."""
    with session.ask("GET", f"manifests/{name}", headers={"Accept": ACCEPTED}) as answer:
        data = answer.read_whole(MAX_MANIFEST)
        said = answer.headers.get(_OWN_DIGEST, "")
    digest = digest_of_bytes(data)
    for asked in (name, said):
        if asked.startswith("sha256:") and asked != digest:
            what = f"the registry sends another manifest than it names: its digest is {digest}, it should be {asked}"
            raise DamagedArchiveError(what, where=str(session.reference), hint=LIES, code="digest-mismatch")
    return data


def put_manifest(session: RegistrySession, manifest: Struct, name: str, media_type: str) -> bool:
    """Put a manifest under a tag or its digest; say whether the registry lists what refers to others by itself.

    Raises RegistryError.
    """
    data = encoded(manifest)
    headers = {"Content-Type": media_type}
    with session.ask(
        "PUT", f"manifests/{name}", fine=(HTTPStatus.CREATED,), headers=headers, body=lambda: data
    ) as answer:
        said, lists = answer.headers.get(_OWN_DIGEST, ""), "OCI-Subject" in answer.headers
    if said.startswith("sha256:") and said != digest_of_bytes(data):
        what = f"the registry took the manifest for another: it says {said}, and it is {digest_of_bytes(data)}"
        raise RegistryError(what, where=str(session.reference), hint="push it again", code="upload-mismatch")
    return lists


def put_referrer(session: RegistrySession, manifest: ImageManifest, subject: str) -> None:
    """Put what refers to a manifest, and list it where the registry does not ("Pushing Manifests with Subject")."""
    data = encoded(manifest)
    entry = Descriptor(
        media_type=manifest.media_type,
        digest=digest_of_bytes(data),
        size=len(data),
        artifact_type=manifest.artifact_type,
        annotations=manifest.annotations,
    )
    if put_manifest(session, manifest, entry.digest, manifest.media_type):
        return
    # Whoever lists another one between our two requests is overwritten: the specification knows of no way round it.
    listed = _tagged_list(session, subject)
    with_ours = with_entry(listed, entry, str(session.reference))
    if with_ours is not listed:
        put_manifest(session, with_ours, _list_tag(subject), LIST_TYPE)


def referrers(session: RegistrySession, subject: str) -> list[tuple[Digest, str]]:
    """Return digest and artifact type of all that refers to a manifest, in the order of the digests."""
    found = _api_lists(session, subject)
    lists = [_tagged_list(session, subject)] if found is None else found
    where = str(session.reference)
    kinds = {entry.digest: entry.artifact_type or "" for each in lists for entry in entries_of(each, where)}
    return sorted(kinds.items())


def _api_lists(session: RegistrySession, subject: str) -> list[ReferrerList] | None:
    """Return the pages of the registry's own list; None: it has none."""
    lists: list[ReferrerList] = []
    address: str | None = f"referrers/{subject}"
    fine = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
    while address is not None and len(lists) < _MAX_PAGES:
        with session.ask("GET", address, headers={"Accept": LIST_TYPE}, fine=fine) as answer:
            if answer.status != HTTPStatus.OK:
                return None
            lists.append(read_list(answer.read_whole(MAX_MANIFEST), str(session.reference)))
            following = _NEXT.search(answer.headers.get("Link", ""))
            address = urljoin(answer.url, following[1]) if following else None
    return lists


def _list_tag(subject: str) -> str:
    return subject.replace(":", "-")


def _tagged_list(session: RegistrySession, subject: str) -> ReferrerList:
    """Return the list that clients keep under a tag where the registry has none ("Referrers Tag Schema")."""
    fine = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
    with session.ask("GET", f"manifests/{_list_tag(subject)}", headers={"Accept": LIST_TYPE}, fine=fine) as answer:
        if answer.status == HTTPStatus.NOT_FOUND:
            return NO_REFERRERS
        return read_list(answer.read_whole(MAX_MANIFEST), str(session.reference))

"""Prepare an upload: list the objects to send, scan them, graft chains, remember remotes, and send parts.

`objects_to_send` lists every object that the remote does not have. `scan_outgoing` reads them once: sizes per class,
databases and dumps, names that look secret, tokens in plain text. `write_grafts` lets git skip objects that the
remote already has. `RemoteState` is the stored state of a remote. `Parts` splits an upload that is too large for one
pack.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, unquote

from git_envhist.diff.path_classes import CLASSES, DATABASES, PACKAGES, class_of, is_dump
from git_envhist.disk import Durability, cannot_write, replace_file, state_directory
from git_envhist.errors import FSCK_HINT, Damaged, GitFailed, SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git, quote_alternate
from git_envhist.lazy import dataclass, pattern, replace
from git_envhist.model import SQLITE_HEADER
from git_envhist.model.sharing import ClassSize, FoundToken, OutgoingScan
from git_envhist.platform import open_file_only
from git_envhist.printable_text import display_bytes
from git_envhist.remote.push_plan import UPLOAD
from git_envhist.secrets.decoded_forms import GZIP, StreamDecompressor, decoded_forms
from git_envhist.secrets.masking import mask_secrets
from git_envhist.secrets.rules import is_key_material, is_secret_name
from git_envhist.secrets.seal import MAGIC as SEALED
from git_envhist.secrets.token_prefilter import URL_PASSWORD
from git_envhist.secrets.tokens import TOKENS, URL_WHAT, find_tokens
from git_envhist.snapshots.heads import read_head, write_head
from git_envhist.snapshots.layout import DOTGIT, MANIFEST, PIECES
from git_envhist.snapshots.stored_names import RESERVED, true_path
from git_envhist.snapshots.wrapped_keys import LIST_FORM

# Objects to send, each with its size and a path. git lists them with two commands; contents are read one by one.

FORMAT = "--batch-check=%(objecttype) %(objectsize) %(objectsize:disk)"
SHARDS = RESERVED + b"/" + MANIFEST + b"/"
IN_PIECES = RESERVED + b"/" + PIECES + b"/"
POINTER = b"envhist-pieces 1\nsize "
MAX_POINTER = 256


@dataclass(frozen=True, slots=True)
class OutgoingObject:
    """An object to send."""

    oid: str
    kind: str
    size: int
    stored: int
    """Its size in a local pack."""
    place: bytes
    """Its path in a tree; empty for commits and for objects in notes."""

    @property
    def path(self) -> bytes:
        """Its path in the environment, if it has one; else its path in the tree."""
        if self.place.startswith(RESERVED + b"/"):
            return self.place
        try:
            return true_path(self.place)
        except Damaged:
            return self.place


def objects_to_send(
    git: Git,
    heads: Sequence[str],
    notes: Sequence[str],
    remote_hashes: Iterable[str],
    grafts: Mapping[bytes, bytes],
) -> list[OutgoingObject]:
    """Return the objects between the tips and the hashes that the remote has; hashes unknown here are ignored."""
    known = known_objects(git, remote_hashes)
    # Objects in notes have no path in the environment.
    rows = _listed(git, heads, known, grafts)
    rows += [(oid, b"") for oid, _ in _listed(git, notes, [*known, *heads], grafts)]
    names = b"".join(oid + b"\n" for oid, _ in rows)
    sizes = git.run("cat-file", FORMAT, stdin=names).splitlines() if rows else []
    if len(sizes) != len(rows):
        raise GitFailed("git does not print the sizes of objects")
    found = []
    for (oid, place), line in zip(rows, sizes, strict=True):
        kind, size, stored = line.split()
        found.append(OutgoingObject(oid.decode("ascii"), kind.decode("ascii"), int(size), int(stored), place))
    return found


def _listed(
    git: Git, wanted: Sequence[str], known: Iterable[str], grafts: Mapping[bytes, bytes]
) -> list[tuple[bytes, bytes]]:
    if not wanted:
        return []
    input_lines = "".join([*(f"{oid}\n" for oid in wanted), *(f"^{oid}\n" for oid in known)])
    words = ("rev-list", "--objects", "--stdin")
    # A name may contain a carriage return, so only a line feed ends a line.
    listed = git.run(*words, stdin=input_lines.encode("ascii"), environment=grafts).split(b"\n")[:-1]
    return [(oid, place) for oid, _, place in (line.partition(b" ") for line in listed)]


def known_objects(git: Git, oids: Iterable[str]) -> list[str]:
    """Return the hashes that exist locally."""
    wanted = sorted(set(oids))
    if not wanted:
        return []
    output = git.run(
        "cat-file", "--batch-check=%(objectname)", stdin="".join(f"{o}\n" for o in wanted).encode()
    )
    lines = output.decode("ascii", "replace").splitlines()
    return [oid for oid, line in zip(wanted, lines, strict=False) if line == oid]


def read_contents(git: Git, objects: Sequence[OutgoingObject]) -> Iterator[tuple[OutgoingObject, bytes]]:
    """Yield each object with its bytes."""
    with CatFile(git) as reader:
        answers = reader.read_many([one.oid for one in objects])
        for one, answer in zip(objects, answers, strict=True):
            if answer is None:
                raise Damaged(f"an object is missing: {one.oid}", hint=FSCK_HINT)
            yield one, answer.data


def chunked_files(git: Git, objects: Iterable[OutgoingObject]) -> dict[bytes, tuple[bytes, int]]:
    """Return the path and size of each big file, by the path of the tree of its chunks."""
    small = [
        one
        for one in objects
        if one.kind == "blob" and one.size <= MAX_POINTER and not one.place.startswith(RESERVED + b"/")
    ]
    found = {}
    for one, data in read_contents(git, small):
        if data.startswith(POINTER):
            size, _, rest = data[len(POINTER) :].partition(b"\n")
            tree = rest.removeprefix(b"tree ").strip()
            if size.isdigit() and len(tree) in (40, 64):
                found[IN_PIECES + tree[:2] + b"/" + tree[2:]] = (one.path, int(size))
    return found


def chunks_of(one: OutgoingObject) -> bytes | None:
    """Return the path of the tree of chunks that a blob belongs to, or None."""
    if not one.place.startswith(IN_PIECES):
        return None
    return b"/".join(one.place.split(b"/")[:4])


def place_text(one: OutgoingObject, data: bytes = b"") -> bytes:
    """Return a path as shown to the user; for a manifest shard the directory that it describes."""
    if one.place.startswith(SHARDS):
        directory = data.partition(b"\n")[0].rpartition(b" ")[2]
        return b"names and attributes in '" + display_bytes(directory).encode("utf-8", "replace") + b"'"
    return one.path or b"a commit or a note"


# Secrets in text that is sent: messages of snapshots, and notes, judged by the mask that a capture applies to them.
# This version has masked them already; an older version masked fewer forms, and plain git may write any message.

META = b"Env-Meta: "
SSH_SIGNATURE = pattern(
    r"(-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]{1,60000}-----END SSH SIGNATURE-----\n?)?"
)
WRITTEN = ("text", "command", "comment", "name", "by", "definition")
"""Members of a note that people, agents and commands write."""


def secret_in_text(one: OutgoingObject, data: bytes) -> FoundToken | None:
    """Return the secret that is readable in a message or note; None if there is none, or for another object."""
    if one.place or one.kind not in ("commit", "blob"):
        return None
    texts = _message_texts(data) if one.kind == "commit" else _note_texts(data)
    if all(mask_secrets(text) == text for text in texts):
        return None
    kind, remove = ("message", f"; git envlog drop {one.oid[:7]}") if one.kind == "commit" else ("note", "")
    return FoundToken(f"{kind} {one.oid[:7]}".encode("ascii"), f"a secret in its text{remove}")


def _message_texts(data: bytes) -> Iterator[bytes]:
    """Yield the intent and the values of metadata; the other trailers contain ids."""
    message = data.partition(b"\n\n")[2]
    intent, blank, trailers = message.rpartition(b"\n\n")
    yield intent if blank else message
    for line in trailers.split(b"\n"):
        if line.startswith(META):
            yield line.removeprefix(META)


def _note_texts(data: bytes) -> Iterator[bytes]:
    if _is_head(data) or _is_wrapped_key(data):
        return
    for line in data.split(b"\n"):
        try:
            record = json.loads(line) if line.strip() else None
        except ValueError:
            yield line
            continue
        values = [record.get(name) for name in WRITTEN] if isinstance(record, dict) else []
        yield from (value.encode("utf-8", "surrogatepass") for value in values if isinstance(value, str))


def _is_wrapped_key(data: bytes) -> bool:
    """Return whether a note is a key that is wrapped for recipients, or the list of them."""
    if LIST_FORM.fullmatch(data):
        return True
    from git_envhist.secrets.age_file import BEGIN, read_age_file  # loaded late: few histories have one

    if not data.startswith(BEGIN.encode("ascii")):
        return False
    try:
        read_age_file(data)
    except SealingError:
        return False
    return True


def _is_head(data: bytes) -> bool:
    """Return whether a note is a signed head, whose key id and signatures are not secret."""
    try:
        head = read_head(data)
    except Damaged:
        return False
    signatures = head.ssh or ""
    return write_head(head) == data and SSH_SIGNATURE.fullmatch(signatures) is not None


SEALED_CLASS, REPOSITORIES, RECORDS = "sealed", "repositories", "records"
ORDER = (*CLASSES, REPOSITORIES, RECORDS, SEALED_CLASS)
"""`records`: manifests, lists and notes that we write."""
ALWAYS_SENT = (RECORDS, SEALED_CLASS)
"""Classes that every push sends, and that show nothing of the environment's contents."""
KEY_KIND = "private keys in DER, or a store of keys"
OVERLAP = 4096
"""Bytes repeated between two chunks of a file, because a token may be split between them."""
NESTED = RESERVED + b"/" + DOTGIT + b"/"


def scan_outgoing(git: Git, objects: Sequence[OutgoingObject], largest: int) -> OutgoingScan:
    """Read every object to send once, and return the totals and findings.

    Objects larger than `largest` are not read.
    """
    big = chunked_files(git, objects)
    totals = _OutgoingTotals()
    for path, size in big.values():
        totals.add(class_of(path), path, size, b"")
    wanted = [one for one in objects if one.kind in ("blob", "commit") and one.size <= largest]
    pieces = _ChunkTexts()
    for one, data in read_contents(git, wanted):
        piece = chunks_of(one)
        path = big.get(piece, (one.path, 0))[0] if piece is not None else one.path
        sealed = data.startswith(SEALED)
        if piece is None and one.kind == "blob":
            totals.add(_class(one, path, data, sealed), path, one.size, data)
        texts = pieces.texts(piece, data)
        if not sealed:
            totals.find(path if piece is not None else place_text(one, data), texts)
        totals.add_text_secret(None if sealed else secret_in_text(one, data))
    return totals.result()


def too_large(objects: Iterable[OutgoingObject], largest: int) -> list[OutgoingObject]:
    """Return the objects that hosts refuse because of their size."""
    return [one for one in objects if one.size > largest]


def is_allowed(path: bytes, allow: Iterable[bytes]) -> bool:
    """Return whether a path, or one of its parent directories, is allowed to be sent."""
    return any(path == one or path.startswith(one.rstrip(b"/") + b"/") for one in allow)


class _ChunkTexts:
    """Turns stored data into texts to search for tokens: overlapping chunks of big files, unpacked compressed ones."""

    def __init__(self) -> None:
        self._tail = b""
        self._tree: bytes | None = None
        self._unfolding: StreamDecompressor | None = None
        self._unfolded = b""

    def texts(self, piece: bytes | None, data: bytes) -> Iterator[bytes]:
        """Return the texts to search: all forms of a whole file, or of one chunk."""
        if piece is None:
            self._tree, self._tail, self._unfolding = None, b"", None
            return decoded_forms(data)
        if piece != self._tree:
            self._tree, self._tail, self._unfolded = piece, b"", b""
            self._unfolding = StreamDecompressor() if data.startswith(GZIP) else None
        text, self._tail = self._tail + data, data[-OVERLAP:]
        return iter((*decoded_forms(text), *self._unfold(data)))

    def _unfold(self, data: bytes) -> Iterator[bytes]:
        if self._unfolding is not None:
            found = self._unfolded + self._unfolding.add(data)
            self._unfolded = found[-OVERLAP:]
            yield found


class _OutgoingTotals:
    def __init__(self) -> None:
        self._shares: dict[str, tuple[int, int]] = {}
        self._databases: dict[bytes, int] = {}
        self._dumps: dict[bytes, int] = {}
        self._names: dict[bytes, None] = {}
        self._tokens: dict[tuple[bytes, str], None] = {}

    def add(self, name: str, path: bytes, size: int, data: bytes) -> None:
        files, total = self._shares.get(name, (0, 0))
        self._shares[name] = (files + 1, total + size)
        if name in ALWAYS_SENT:
            return
        if name == DATABASES:
            self._databases[path] = max(size, self._databases.get(path, 0))
        elif name != PACKAGES and is_dump(path, data):
            self._dumps[path] = max(size, self._dumps.get(path, 0))
        if is_secret_name(path):
            self._names[path] = None

    def find(self, path: bytes, texts: Iterable[bytes]) -> None:
        for text in texts:
            if is_key_material(text):
                self._tokens[(path, KEY_KIND)] = None
            for kind in find_tokens(text):
                self._tokens[(path, URL_WHAT if kind == URL_PASSWORD else TOKENS[kind][0])] = None

    def add_text_secret(self, found: FoundToken | None) -> None:
        if found is not None:
            self._tokens[(found.path, found.kind)] = None

    def result(self) -> OutgoingScan:
        shares = tuple(ClassSize(name, *self._shares[name]) for name in ORDER if name in self._shares)
        tokens = tuple(FoundToken(path, kind) for path, kind in self._tokens)
        databases, dumps = tuple(sorted(self._databases.items())), tuple(sorted(self._dumps.items()))
        return OutgoingScan(shares, databases, tokens, dumps, tuple(sorted(self._names)))


def _class(one: OutgoingObject, path: bytes, data: bytes, sealed: bool) -> str:
    if sealed:
        return SEALED_CLASS
    if one.place.startswith(NESTED):
        return REPOSITORIES
    if not one.place or one.place.startswith(RESERVED + b"/"):
        return RECORDS
    # The first bytes identify a database with any name.
    return DATABASES if data.startswith(SQLITE_HEADER) else class_of(path)


def consent_words(result: OutgoingScan) -> tuple[str, ...]:
    """Return everything that needs consent, one word each: classes, databases, dumps, names that look secret."""
    classes = [f"class {share.name}" for share in result.shares if share.name not in ALWAYS_SENT]
    paths = {
        "database": [path for path, _ in result.databases],
        "dump": [path for path, _ in result.dumps],
        "name": list(result.names),
    }
    return (*classes, *(f"{kind} {path.hex()}" for kind, some in paths.items() for path in some))


def shown_consent(word: str) -> str:
    """Return one of these words as shown to the user."""
    kind, _, rest = word.partition(" ")
    if kind == "class":
        return f"class '{rest}'"
    shown = bytes.fromhex(rest).decode("utf-8", "surrogateescape")
    subject = {"database": "the database", "dump": "the dump", "name": "a name that looks secret:"}[kind]
    return f"{subject} '{shown}'"


# Grafts: let git skip objects that the remote already has. git skips only objects reachable from the parents of new
# commits. For a timeline that was rewritten or forked, or whose files were sent in parts or are in commits of code, it
# would send everything again. During a push the oldest new commit therefore gets commits on the remote as additional
# parents, through a graft file in the environment. Nothing is written to the repository, and the sent commits are
# unchanged.

MAX_BASES = 40
"""The tree of each base is walked."""


def write_grafts(
    git: Git, path: str, chains: Iterable[tuple[str, str | None]], bases: Sequence[str]
) -> Mapping[bytes, bytes]:
    """Graft chains, each given as (new tip, old tip), onto commits that the remote has; return the environment for
    git.
    """
    known = known_objects(git, [*bases, *(old for _, old in chains if old is not None)])
    bases_here = [oid for oid in dict.fromkeys(bases) if oid in known][:MAX_BASES]
    lines = [_graft_line(git, new, old if old in known else None, bases_here) for new, old in chains]
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(line for line in lines if line))
    except OSError as error:
        raise cannot_write(error, path) from error
    return {b"GIT_GRAFT_FILE": os.fsencode(path)}


def _graft_line(git: Git, new: str, old: str | None, bases_here: Sequence[str]) -> str:
    words = ["rev-list", "--first-parent", "--parents", new, *([f"^{old}"] if old is not None else []), "--"]
    listed = git.run(*words).decode("ascii").split("\n")[:-1]
    if not listed:
        return ""
    # A rewritten chain is grafted onto the old one, too.
    oldest, *parents = listed[-1].split(" ")
    extra_parents = [
        oid
        for oid in (*([old] if old is not None else []), *bases_here)
        if oid not in (*parents, new, oldest)
    ]
    return " ".join([oldest, *parents, *dict.fromkeys(extra_parents)]) + "\n"


# The state file of a remote, `<common git dir>/envhist/remotes/<key>`: that its owner agreed to send there, which
# hashes we pushed last, and the name of our uploads. If it is lost, git-envhist asks again, and rewrites nothing
# there without `--delete`.

FIRST = "envhist-remote 1"
PUT = re.compile(r"put ([0-9a-f]{40}|[0-9a-f]{64}) (refs/[!-~]+)")

KIND = re.compile(r"class [a-z]+|(?:database|dump|name) [0-9a-f]+")


@dataclass(frozen=True, slots=True)
class RemoteState:
    """The stored state of one remote."""

    agreed: bool = False
    upload: str = ""
    """The name of our uploads on the remote until they are complete."""
    put: tuple[tuple[str, str], ...] = ()
    """The (ref, hash) pairs of our last push; after an interrupted push a ref can have several."""
    kinds: tuple[str, ...] = ()
    """The classes, databases, dumps and names that the owner agreed to send."""
    address: str = ""
    """The address without a password, because a remote given by address has no name."""


def remotes_directory(common_state: str) -> str:
    return os.path.join(common_state, "remotes")


def read_remote_state(common_state: str, key: str) -> RemoteState:
    """Return the state of a remote; an empty one if there is no valid file."""
    try:
        with open(
            os.path.join(remotes_directory(common_state), key),
            encoding="ascii",
            errors="replace",
            opener=open_file_only,
        ) as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return RemoteState()
    if lines[:1] != [FIRST]:
        return RemoteState()
    uploads = [line[7:] for line in lines if re.fullmatch(r"upload [0-9a-f]{12}", line)]
    put = [(found[2], found[1]) for line in lines if (found := PUT.fullmatch(line))]
    kinds = tuple(line for line in lines if KIND.fullmatch(line))
    addresses = [unquote(line[8:]) for line in lines if line.startswith("address ")]
    return RemoteState(
        "agreed" in lines,
        uploads[0] if uploads else "",
        tuple(put),
        kinds,
        addresses[0] if addresses else "",
    )


def write_remote_state(common_state: str, key: str, state: RemoteState) -> None:
    """Write the remote's state file."""
    lines = [FIRST, *(["agreed"] if state.agreed else [])]
    lines += [f"upload {state.upload}"] if state.upload else []
    lines += [f"put {oid} {ref}" for ref, oid in sorted(state.put)]
    lines += sorted(state.kinds)
    lines += [f"address {quote(state.address, safe='/:@')}"] if state.address else []
    directory = state_directory(remotes_directory(common_state))
    path = os.path.join(directory, key)
    try:
        replace_file(path, "\n".join([*lines, ""]).encode("ascii"), durability=Durability.FULL)
    except OSError as error:
        raise cannot_write(error, directory) from error


def after_push(state: RemoteState, moves: Mapping[str, str | None]) -> RemoteState:
    """Return the state after refs moved; None is a deleted ref."""
    others = [(ref, oid) for ref, oid in state.put if ref not in moves]
    moved = [(ref, oid) for ref, oid in moves.items() if oid is not None]
    return replace(state, put=tuple(sorted({*others, *moved})))


def before_push(state: RemoteState, moves: Mapping[str, str | None]) -> RemoteState:
    """Return the state before refs move: if the process is killed meanwhile, it is unknown whether they moved."""
    attempted = [(ref, oid) for ref, oid in moves.items() if oid is not None]
    return replace(state, put=tuple(sorted({*state.put, *attempted})))


# Upload in parts, if one pack would be too large for the host. Each part is a commit of a flat tree, pushed to
# `refs/envhist/upload/<name>/<part>`. The push of the timelines then sends only the rest (commits and trees), and the
# upload refs are deleted, so an incomplete timeline is never visible. The commits and trees of the parts are stored
# in our own object directory, so the upload refs show which parts of an interrupted push have arrived. Nothing is
# written to the repository.

ANONYMOUS = {
    b"GIT_AUTHOR_NAME": b"git-envhist", b"GIT_AUTHOR_EMAIL": b"", b"GIT_AUTHOR_DATE": b"1000000000 +0000",
    b"GIT_COMMITTER_NAME": b"git-envhist", b"GIT_COMMITTER_EMAIL": b"", b"GIT_COMMITTER_DATE": b"1000000000 +0000",
}  # fmt: skip


def split_into_parts(objects: Iterable[OutgoingObject], max_size: int) -> Iterator[list[OutgoingObject]]:
    """Yield the blobs to send in parts of at most `most` bytes each, or of one blob."""
    part: list[OutgoingObject] = []
    size = 0
    for one in objects:
        if one.kind != "blob":
            continue
        if part and size + one.stored > max_size:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.stored
    if part:
        yield part


class Parts:
    """The parts of one upload."""

    def __init__(self, git: Git, place: str, objects_dir: str, name: str) -> None:
        """`name` is the directory of the upload refs on the remote."""
        self.place = place
        self._objects = os.path.join(place, "objects")
        self._objects_dir = objects_dir
        self._prefix = f"{UPLOAD}{name}/"
        self._git = git

    @property
    def git(self) -> Git:
        """git with access to the objects of the parts."""
        return self._git.with_objects(self._objects) if os.path.isdir(self._objects) else self._git

    @property
    def environment(self) -> dict[bytes, bytes]:
        """The environment in which git reads the parts and writes to them."""
        if not os.path.isdir(self._objects):
            return {}
        return {
            b"GIT_OBJECT_DIRECTORY": os.fsencode(self._objects),
            b"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsencode(quote_alternate(self._objects_dir)),
        }

    def own_uploads(self, uploads: Mapping[str, str]) -> dict[str, str]:
        """Return our upload refs on the remote."""
        return {ref: oid for ref, oid in uploads.items() if ref.startswith(self._prefix)}

    def make(self, part: Sequence[OutgoingObject]) -> tuple[str, str]:
        """Create the commit of a part; return (ref, commit)."""
        state_directory(self.place)
        state_directory(self._objects)
        environment = {**ANONYMOUS, **self.environment}
        rows = "".join(f"100644 blob {one.oid}\t{number:08x}\n" for number, one in enumerate(part))
        tree = self._git.run("mktree", stdin=rows.encode("ascii"), environment=environment).strip()
        words = ("commit-tree", "-m", "a part of an upload", tree)
        commit = self._git.run(*words, environment=environment).decode("ascii").strip()
        return f"{self._prefix}p{commit[:20]}", commit

    def remove(self) -> None:
        """Delete the parts after they have arrived."""
        try:
            shutil.rmtree(self.place)
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot_write(error, self.place) from error

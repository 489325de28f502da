"""Look through all that leaves with a push: how much of what is in the clear, which names tell, and no token in it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, unquote

from git_envhist.diff.classes import CLASSES, DATABASES, PACKAGES, class_of, is_dump
from git_envhist.disk import Durability, cannot_write, replace_file, state_directory
from git_envhist.errors import Damaged, GitFailed, SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git, quote_alternate
from git_envhist.lazy import dataclass, pattern, replace
from git_envhist.model import SQLITE_HEADER
from git_envhist.model.storage import ClassSize, FoundToken, OutgoingScan
from git_envhist.platform import open_file_only
from git_envhist.remote.remotes import UPLOAD
from git_envhist.secrets.layers import GZIP, StreamDecompressor, decoded_forms
from git_envhist.secrets.masking import mask_secrets
from git_envhist.secrets.rules import is_key_material, is_secret_name
from git_envhist.secrets.seal import MAGIC as SEALED
from git_envhist.secrets.token_prefilter import URL_PASSWORD
from git_envhist.secrets.tokens import TOKENS, URL_WHAT, find_tokens
from git_envhist.snapshots.heads import read_head, write_head
from git_envhist.snapshots.layout import DOTGIT, MANIFEST, PIECES
from git_envhist.snapshots.names import RESERVED, true_path
from git_envhist.snapshots.wrapped_keys import LIST_FORM
from git_envhist.text import show

# What a push would send: every object that the other side has not, with its size and a path that it stands at.
#
# Asked of git in two commands. Contents are read one after the other and only for whoever looks into them.

FORMAT = "--batch-check=%(objecttype) %(objectsize) %(objectsize:disk)"
SHARDS = RESERVED + b"/" + MANIFEST + b"/"
IN_PIECES = RESERVED + b"/" + PIECES + b"/"
POINTER = b"envhist-pieces 1\nsize "
MAX_POINTER = 256


@dataclass(frozen=True, slots=True)
class OutgoingObject:
    """One object that is to leave."""

    oid: str
    kind: str
    size: int
    stored: int
    """So many bytes it takes in a pack here."""
    place: bytes
    """Where it stands in a tree; nothing for a commit and for what notes hold."""

    @property
    def path(self) -> bytes:
        """Where it stands in the environment, as far as that is a path of it."""
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
    there: Iterable[str],
    grafts: Mapping[bytes, bytes],
) -> list[OutgoingObject]:
    """The objects that lead from tips to those that the other side has; hashes unknown here do not count."""
    known = known_objects(git, there)
    # What notes hold stands in no environment.
    rows = _listed(git, heads, known, grafts)
    rows += [(oid, b"") for oid, _ in _listed(git, notes, [*known, *heads], grafts)]
    names = b"".join(oid + b"\n" for oid, _ in rows)
    told = git.run("cat-file", FORMAT, stdin=names).splitlines() if rows else []
    if len(told) != len(rows):
        raise GitFailed("git does not say how large objects are")
    found = []
    for (oid, place), line in zip(rows, told, strict=True):
        kind, size, stored = line.split()
        found.append(OutgoingObject(oid.decode("ascii"), kind.decode("ascii"), int(size), int(stored), place))
    return found


def _listed(
    git: Git, wanted: Sequence[str], known: Iterable[str], grafts: Mapping[bytes, bytes]
) -> list[tuple[bytes, bytes]]:
    if not wanted:
        return []
    asked = "".join([*(f"{oid}\n" for oid in wanted), *(f"^{oid}\n" for oid in known)])
    words = ("rev-list", "--objects", "--stdin")
    # A name may hold a carriage return: what git ends lines with, and nothing else, ends one.
    listed = git.run(*words, stdin=asked.encode("ascii"), environment=grafts).split(b"\n")[:-1]
    return [(oid, place) for oid, _, place in (line.partition(b" ") for line in listed)]


def known_objects(git: Git, oids: Iterable[str]) -> list[str]:
    """Those of some hashes that are here."""
    wanted = sorted(set(oids))
    if not wanted:
        return []
    told = git.run(
        "cat-file", "--batch-check=%(objectname)", stdin="".join(f"{o}\n" for o in wanted).encode()
    )
    lines = told.decode("ascii", "replace").splitlines()
    return [oid for oid, line in zip(wanted, lines, strict=False) if line == oid]


def contents(git: Git, leaving: Sequence[OutgoingObject]) -> Iterator[tuple[OutgoingObject, bytes]]:
    """The bytes of each of them."""
    with CatFile(git) as reader:
        answers = reader.read_many([one.oid for one in leaving])
        for one, answer in zip(leaving, answers, strict=True):
            if answer is None:
                raise Damaged(
                    f"an object is missing: {one.oid}", hint="'git envlog fsck' says what else is missing"
                )
            yield one, answer.data


def files_of_pieces(git: Git, leaving: Iterable[OutgoingObject]) -> dict[bytes, tuple[bytes, int]]:
    """The path and the size of each big file, by the place at which the tree of its pieces hangs."""
    small = [
        one
        for one in leaving
        if one.kind == "blob" and one.size <= MAX_POINTER and not one.place.startswith(RESERVED + b"/")
    ]
    found = {}
    for one, data in contents(git, small):
        if data.startswith(POINTER):
            size, _, rest = data[len(POINTER) :].partition(b"\n")
            tree = rest.removeprefix(b"tree ").strip()
            if size.isdigit() and len(tree) in (40, 64):
                found[IN_PIECES + tree[:2] + b"/" + tree[2:]] = (one.path, int(size))
    return found


def piece_of(one: OutgoingObject) -> bytes | None:
    """The place of the tree of pieces that a blob belongs to; None where it is none."""
    if not one.place.startswith(IN_PIECES):
        return None
    return b"/".join(one.place.split(b"/")[:4])


def shown_place(one: OutgoingObject, data: bytes = b"") -> bytes:
    """How a place is told to people: of a shard the directory whose names and attributes it holds."""
    if one.place.startswith(SHARDS):
        directory = data.partition(b"\n")[0].rpartition(b" ")[2]
        return b"names and attributes in '" + show(directory).encode("utf-8", "replace") + b"'"
    return one.path or b"a commit or a note"


# Secrets in the words that leave: messages of snapshots and notes, judged by the mask that a capture applies to them.
#
# What this version captured is masked already. An older version masked fewer forms, and plain git may write any
# message.

META = b"Env-Meta: "
SSH_ALONE = pattern(
    r"(-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]{1,60000}-----END SSH SIGNATURE-----\n?)?"
)
WRITTEN = ("text", "command", "comment", "name", "by", "definition")
"""The members of a note that people, agents and commands write."""


def secret_in_words(one: OutgoingObject, data: bytes) -> FoundToken | None:
    """A secret that is readable in a message or a note; None if there is none, or the object is another."""
    if one.place or one.kind not in ("commit", "blob"):
        return None
    texts = _of_message(data) if one.kind == "commit" else _of_notes(data)
    if all(mask_secrets(text) == text for text in texts):
        return None
    what, forget = ("message", f"; git envlog drop {one.oid[:7]}") if one.kind == "commit" else ("note", "")
    return FoundToken(f"{what} {one.oid[:7]}".encode("ascii"), f"a secret in its words{forget}")


def _of_message(data: bytes) -> Iterator[bytes]:
    """The intent, and the values that were given with it; the other trailers hold ids."""
    message = data.partition(b"\n\n")[2]
    intent, blank, trailers = message.rpartition(b"\n\n")
    yield intent if blank else message
    for line in trailers.split(b"\n"):
        if line.startswith(META):
            yield line.removeprefix(META)


def _of_notes(data: bytes) -> Iterator[bytes]:
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
    """Return whether a note is a signed head, whose key id and signatures are no secrets."""
    try:
        head = read_head(data)
    except Damaged:
        return False
    signatures = head.ssh or ""
    return write_head(head) == data and SSH_ALONE.fullmatch(signatures) is not None


SEALED_CLASS, REPOSITORIES, RECORDS = "sealed", "repositories", "records"
ORDER = (*CLASSES, REPOSITORIES, RECORDS, SEALED_CLASS)
"""`records`: what we write about them: manifests, lists, notes."""
ALWAYS = (RECORDS, SEALED_CLASS)
"""These leave with every push, and show nothing of the environment's contents."""
KEY_WHAT = "private keys in DER, or a store of keys"
OVERLAP = 4096
"""A token may stand across the cut between two pieces of a file."""
NESTED = RESERVED + b"/" + DOTGIT + b"/"


def scan_outgoing(git: Git, leaving: Sequence[OutgoingObject], largest: int) -> OutgoingScan:
    """Read all that leaves once, in every directory. An object larger than `largest` is refused, and not read."""
    big = files_of_pieces(git, leaving)
    tally = _OutgoingTotals()
    for path, size in big.values():
        tally.add(class_of(path), path, size, b"")
    wanted = [one for one in leaving if one.kind in ("blob", "commit") and one.size <= largest]
    pieces = _Pieces()
    for one, data in contents(git, wanted):
        piece = piece_of(one)
        path = big.get(piece, (one.path, 0))[0] if piece is not None else one.path
        sealed = data.startswith(SEALED)
        if piece is None and one.kind == "blob":
            tally.add(_class(one, path, data, sealed), path, one.size, data)
        texts = pieces.texts(piece, data)
        if not sealed:
            tally.find(path if piece is not None else shown_place(one, data), texts)
        tally.add_word(None if sealed else secret_in_words(one, data))
    return tally.look()


def too_large(leaving: Iterable[OutgoingObject], largest: int) -> list[OutgoingObject]:
    """The objects that hosts refuse for their size."""
    return [one for one in leaving if one.size > largest]


def is_allowed(path: bytes, allow: Iterable[bytes]) -> bool:
    """Whether a path, or a directory that it lies in, is among those that may leave."""
    return any(path == one or path.startswith(one.rstrip(b"/") + b"/") for one in allow)


class _Pieces:
    """The pieces of big files, each with the end of the one before it, and what a compressed file unfolds to."""

    def __init__(self) -> None:
        self._tail = b""
        self._whose: bytes | None = None
        self._unfolding: StreamDecompressor | None = None
        self._unfolded = b""

    def texts(self, piece: bytes | None, data: bytes) -> Iterator[bytes]:
        """What is to be searched: all forms of a whole file, or a piece of one."""
        if piece is None:
            self._whose, self._tail, self._unfolding = None, b"", None
            return decoded_forms(data)
        if piece != self._whose:
            self._whose, self._tail, self._unfolded = piece, b"", b""
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
        if name in ALWAYS:
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
                self._tokens[(path, KEY_WHAT)] = None
            for kind in find_tokens(text):
                self._tokens[(path, URL_WHAT if kind == URL_PASSWORD else TOKENS[kind][0])] = None

    def add_word(self, found: FoundToken | None) -> None:
        if found is not None:
            self._tokens[(found.path, found.kind)] = None

    def look(self) -> OutgoingScan:
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
    # Its first bytes tell a database by whatever name it goes.
    return DATABASES if data.startswith(SQLITE_HEADER) else class_of(path)


def kinds_in(look: OutgoingScan) -> tuple[str, ...]:
    """Return what a push must be agreed to for, one word each: classes, databases, dumps, names that look secret."""
    classes = [f"class {share.name}" for share in look.shares if share.name not in ALWAYS]
    paths = {
        "database": [path for path, _ in look.databases],
        "dump": [path for path, _ in look.dumps],
        "name": list(look.names),
    }
    return (*classes, *(f"{kind} {path.hex()}" for kind, some in paths.items() for path in some))


def shown_kind(word: str) -> str:
    """One of these words as it is shown to people."""
    kind, _, rest = word.partition(" ")
    if kind == "class":
        return f"files of the class '{rest}'"
    shown = bytes.fromhex(rest).decode("utf-8", "surrogateescape")
    what = {"database": "the database", "dump": "the dump", "name": "a name that looks secret:"}[kind]
    return f"{what} '{shown}'"


# Lets git see what the other side has already, where a chain has no parent that would say so.
#
# A push leaves out what the parents of new commits hold, and nothing else: of a timeline that was rewritten or forked,
# or whose files arrived in parts, or stand in commits of code, it would send all of it again. So for the time of a push
# the oldest of the new commits has these for further parents, by a file of grafts that git is given. Nothing is written
# into the repository, and the commits that arrive are what they are.

MAX_BASES = 40
"""The tree of each is walked."""


def write_grafts(
    git: Git, path: str, chains: Iterable[tuple[str, str | None]], bases: Sequence[str]
) -> Mapping[bytes, bytes]:
    """Graft chains, each given by (its new tip, its old one), onto what is there; the environment for git."""
    known = known_objects(git, [*bases, *(old for _, old in chains if old is not None)])
    onto = [oid for oid in dict.fromkeys(bases) if oid in known][:MAX_BASES]
    lines = [_line(git, new, old if old in known else None, onto) for new, old in chains]
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(line for line in lines if line))
    except OSError as error:
        raise cannot_write(error, path) from error
    return {b"GIT_GRAFT_FILE": os.fsencode(path)}


def _line(git: Git, new: str, old: str | None, onto: Sequence[str]) -> str:
    words = ["rev-list", "--first-parent", "--parents", new, *([f"^{old}"] if old is not None else []), "--"]
    listed = git.run(*words).decode("ascii").split("\n")[:-1]
    if not listed:
        return ""
    # A rewritten chain is grafted onto the old one too.
    oldest, *parents = listed[-1].split(" ")
    further = [
        oid for oid in (*([old] if old is not None else []), *onto) if oid not in (*parents, new, oldest)
    ]
    return " ".join([oldest, *parents, *dict.fromkeys(further)]) + "\n"


# What is remembered of a remote: that its owner agreed to send there, what we put there last, and what an upload left.
#
# One small file for each address, `<common git dir>/envhist/remotes/<key>`, written by rename: whoever loses it is
# asked once more, and rewrites nothing there without `--delete`.

FIRST = "envhist-remote 1"
PUT = re.compile(r"put ([0-9a-f]{40}|[0-9a-f]{64}) (refs/[!-~]+)")

KIND = re.compile(r"class [a-z]+|(?:database|dump|name) [0-9a-f]+")


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What we know of one remote."""

    agreed: bool = False
    upload: str = ""
    """The name under which our uploads stand there until they are whole."""
    put: tuple[tuple[str, str], ...] = ()
    """(ref, hash) of what we put there last; of a ref more than one where a push was broken off."""
    kinds: tuple[str, ...] = ()
    """The classes, databases, dumps and names that its owner agreed to send."""
    address: str = ""
    """Its address without a password: a remote that was given by address has no name."""


def directory_of(common_state: str) -> str:
    return os.path.join(common_state, "remotes")


def read_memory(common_state: str, key: str) -> RemoteState:
    """What is remembered; nothing where there is no such file, or none of ours."""
    try:
        with open(
            os.path.join(directory_of(common_state), key),
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


def write_memory(common_state: str, key: str, memory: RemoteState) -> None:
    """Remember."""
    lines = [FIRST, *(["agreed"] if memory.agreed else [])]
    lines += [f"upload {memory.upload}"] if memory.upload else []
    lines += [f"put {oid} {ref}" for ref, oid in sorted(memory.put)]
    lines += sorted(memory.kinds)
    lines += [f"address {quote(memory.address, safe='/:@')}"] if memory.address else []
    directory = state_directory(directory_of(common_state))
    path = os.path.join(directory, key)
    try:
        replace_file(path, "\n".join([*lines, ""]).encode("ascii"), durability=Durability.FULL)
    except OSError as error:
        raise cannot_write(error, directory) from error


def with_put(memory: RemoteState, moves: Mapping[str, str | None]) -> RemoteState:
    """The memory after refs were moved; None: deleted."""
    others = [(ref, oid) for ref, oid in memory.put if ref not in moves]
    moved = [(ref, oid) for ref, oid in moves.items() if oid is not None]
    return replace(memory, put=tuple(sorted({*others, *moved})))


def with_tried(memory: RemoteState, moves: Mapping[str, str | None]) -> RemoteState:
    """The memory before refs are moved: whoever is killed meanwhile never knows whether they were."""
    tried = [(ref, oid) for ref, oid in moves.items() if oid is not None]
    return replace(memory, put=tuple(sorted({*memory.put, *tried})))


# Uploads in parts, where all at once would be more than a host takes in one pack.
#
# What is to leave is divided; each part is a commit of a flat tree and goes to `refs/envhist/upload/<ours>/<part>`
# first. When all parts are there, the push of the timelines themselves sends what is left (commits and trees), and then
# the upload refs go. Nobody sees a timeline of which anything is missing.
#
# The commits and trees of the parts are kept in a directory of objects of ours until then: so a push that was broken
# off knows, by the refs that it left there, what has arrived already. Not one object is written into the repository.

NOBODY = {
    b"GIT_AUTHOR_NAME": b"git-envhist", b"GIT_AUTHOR_EMAIL": b"", b"GIT_AUTHOR_DATE": b"1000000000 +0000",
    b"GIT_COMMITTER_NAME": b"git-envhist", b"GIT_COMMITTER_EMAIL": b"", b"GIT_COMMITTER_DATE": b"1000000000 +0000",
}  # fmt: skip


def divide(leaving: Iterable[OutgoingObject], most: int) -> Iterator[list[OutgoingObject]]:
    """The blobs among what leaves, in parts that take no more than `most` each (or are one blob)."""
    part: list[OutgoingObject] = []
    size = 0
    for one in leaving:
        if one.kind != "blob":
            continue
        if part and size + one.stored > most:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.stored
    if part:
        yield part


class Parts:
    """The parts of one upload."""

    def __init__(self, git: Git, place: str, objects_dir: str, name: str) -> None:
        """`name`: under which they stand there."""
        self.place = place
        self._objects = os.path.join(place, "objects")
        self._objects_dir = objects_dir
        self._prefix = f"{UPLOAD}{name}/"
        self._git = git

    @property
    def git(self) -> Git:
        """git, seeing the parts too."""
        return self._git.with_objects(self._objects) if os.path.isdir(self._objects) else self._git

    @property
    def environment(self) -> dict[bytes, bytes]:
        """What lets a git see them, and write there what it writes."""
        if not os.path.isdir(self._objects):
            return {}
        return {
            b"GIT_OBJECT_DIRECTORY": os.fsencode(self._objects),
            b"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsencode(quote_alternate(self._objects_dir)),
        }

    def left_there(self, uploads: Mapping[str, str]) -> dict[str, str]:
        """Those of the upload refs there that are ours."""
        return {ref: oid for ref, oid in uploads.items() if ref.startswith(self._prefix)}

    def make(self, part: Sequence[OutgoingObject]) -> tuple[str, str]:
        """(ref, commit) of a part."""
        state_directory(self.place)
        state_directory(self._objects)
        environment = {**NOBODY, **self.environment}
        rows = "".join(f"100644 blob {one.oid}\t{number:08x}\n" for number, one in enumerate(part))
        tree = self._git.run("mktree", stdin=rows.encode("ascii"), environment=environment).strip()
        words = ("commit-tree", "-m", "a part of an upload", tree)
        commit = self._git.run(*words, environment=environment).decode("ascii").strip()
        return f"{self._prefix}p{commit[:20]}", commit

    def forget(self) -> None:
        """They have arrived, and are needed no more."""
        try:
            shutil.rmtree(self.place)
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot_write(error, self.place) from error

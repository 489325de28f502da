# What conda's tools leave: the records that py-rattler writes, of two packages of our own making.
need python3
python3 -m venv ../tool >&2
../tool/bin/pip install -q py-rattler >&2
../tool/bin/python - <<'P'
import asyncio, hashlib, io, json, os, sys, tarfile, rattler

def package(name, version, build, depends):
    """A package as a channel holds it."""
    about = {"name": name, "version": version, "build": build, "build_number": 0, "depends": depends, "subdir": "noarch", "arch": None, "platform": None, "noarch": "generic"}
    path = f"../channel/noarch/{name}-{version}-{build}.tar.bz2"
    with tarfile.open(path, "w:bz2") as archive:
        for file, told in {"info/index.json": about, "info/paths.json": {"paths": [], "paths_version": 1}}.items():
            data = json.dumps(told).encode()
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    data = open(path, "rb").read()
    return os.path.basename(path), {**about, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "md5": hashlib.md5(data).hexdigest()}

async def main():
    os.makedirs("../channel/noarch")
    os.makedirs("../channel/linux-64")
    packages = dict([package("small-base", "1.5.0", "h1234567_0", []), package("top_tool", "2.0", "py_3", ["small-base >=1"])])
    for subdir, listed in (("noarch", packages), ("linux-64", {})):
        with open(f"../channel/{subdir}/repodata.json", "w") as file:
            json.dump({"info": {"subdir": subdir}, "packages": listed, "packages.conda": {}, "repodata_version": 1}, file)
    channel = rattler.Channel("file://" + os.path.abspath("../channel") + "/")
    solved = await rattler.solve(sources=[channel], specs=["top_tool"], platforms=["linux-64", "noarch"])
    await rattler.install(records=solved, target_prefix="env", cache_dir="../cache", show_progress=False)
    for record in rattler.PrefixRecord.from_path and sorted(os.listdir("env/conda-meta")):
        if record.endswith(".json"):
            told = rattler.PrefixRecord.from_path(f"env/conda-meta/{record}")
            print(f"env/{told.name.normalized} {told.version}-{told.build}")
    with open("../version", "w") as file:
        print("py-rattler", rattler.__version__, file=file)

asyncio.run(main())
P

"""What the campaigns share: each other's code, simulated GitHubs, processes that are watched, and the machine that they run on."""
import atexit, datetime, importlib.machinery, importlib.util, json, os, platform, shutil, statistics, subprocess, sys, urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
TICK = os.sysconf("SC_CLK_TCK")

# Starts a program and says what it took. A process begins with the memory of the one that starts it, so that a small one starts it.
WATCH = """
import json, os, sys, time
out = [(os.POSIX_SPAWN_OPEN, at, sys.argv[at], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for at in (1, 2)]
began = time.perf_counter()
pid = os.posix_spawnp(sys.argv[3], sys.argv[3:], os.environ, file_actions=out)
_, status, used = os.wait4(pid, 0)
took = time.perf_counter() - began
print(json.dumps([took, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)]))
"""


def script(name):
    """The code of another campaign."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(Path(__file__).with_name(name)))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def simulator(program, folder):
    """Starts the simulator with `scenario.toml` of a folder. Gives its process and what it says of itself."""
    with open(folder / "sim.err", "w") as errors:
        process = subprocess.Popen([program, "--json", "sim", "--scenario", folder / "scenario.toml", "--keep", folder / "github"],
                                   stdout=subprocess.PIPE, stderr=errors, text=True)
    atexit.register(process.kill)
    text = ""
    while line := process.stdout.readline():
        text += line
        try:
            return process, json.loads(text)
        except ValueError:
            pass
    sys.exit((folder / "sim.err").read_text())


def ask(address, method="GET", body=None, token="ada"):
    """One request to the simulator; a proxy of the machine is passed by."""
    request = urllib.request.Request(address, method=method, data=json.dumps(body).encode() if body is not None else None)
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.loads(answer.read() or b"null")


def watched(command, at, env, folder):
    """
    Runs a program to its end. What it says goes to `watched.out` and `watched.err` of the folder. Gives its time, the processor's time,
    the most memory of it or of one that it started in bytes, and its exit code.
    """
    put = [folder / "watched.out", folder / "watched.err"]
    told = subprocess.run([sys.executable, "-I", "-S", "-c", WATCH, *put, *command], cwd=at, env=env, check=True, capture_output=True)
    return json.loads(told.stdout)


def processor_time(pid):
    """Seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / TICK


def memory(pid, what):
    """Megabytes (of 1,048,576 bytes): `VmRSS` now, `VmHWM` at most."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def file_system(place):
    return subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True).stdout.strip()


def spread(figures):
    """Median, least, most, and of how many."""
    return {"median": statistics.median(figures), "least": min(figures), "most": max(figures), "rounds": len(figures)}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def load():
    """What else the machine does: processes that want to run, on average of the last 1, 5 and 15 minutes."""
    return [round(one, 2) for one in os.getloadavg()]


def machine():
    """What the figures are of, without a name of it."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":", 1)[1].strip() for line in facts.splitlines() if line.startswith("model name")), platform.machine())
    return {
        "cores": os.cpu_count(), "processor": model, "system": f"{platform.system()} {platform.release()}",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "git": subprocess.run(["git", "--version"], capture_output=True, text=True).stdout.split()[-1] if shutil.which("git") else None,
    }

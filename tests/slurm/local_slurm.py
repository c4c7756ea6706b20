"""A throw-away SLURM of one node, for tests: no systemd, no accounting, all of it in one folder, on the loopback only.

As a script it says what is missing, if anything is.

Debian's packages slurm-wlm, slurm-client and munge, and root, are needed; nothing is installed here.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PACKAGES = "apt-get install -y --no-install-recommends slurm-wlm slurm-client munge"
START_S, STOP_S = 30.0, 15.0

# proctrack/linuxproc and task/none: in a container without its own cgroups the other plugins end each job unrun, and
# report it as completed. cred_expire is also the time that a requeued job waits; below 5 it falls back to 120.
# MinJobAge keeps ended jobs in squeue.
SETTINGS = """\
ClusterName=gnnrag
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={node_port}
SrunPortRange={first}-{last}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
StateSaveLocation={root}/controller
SlurmdSpoolDir={root}/node
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={root}/ended.txt
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=2
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
ReturnToService=2
KillWait=5
MinJobAge=3600
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:2 State=UNKNOWN
PartitionName=work Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str:
    """Return why no SLURM can be started here; empty where it can."""
    if missing := [name for name in (*DAEMONS, "sbatch") if shutil.which(name) is None]:
        return f"{', '.join(missing)}: not installed; on Debian: {PACKAGES}"
    if os.geteuid() != 0:
        return "the daemons of a test SLURM are started as root"
    return ""


class LocalSlurm:
    """One node, the partitions `work` and `urgent` (which preempts it), two GPUs that are none.

    Args:
        root: folder of everything that the daemons write; made when missing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.conf = self.root / "slurm.conf"

    def start(self) -> dict[str, str]:
        """Start the daemons and wait for the node; returns the variables that its clients need."""
        for name in ("munge", "controller", "node"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
            (self.root / name).chmod(0o755)
        key = self.root / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        devices = ("/dev/null", "/dev/zero")
        (self.root / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in devices))
        self.conf.write_text(self._settings())
        munge = {name: self.root / "munge" / name for name in ("socket", "seed", "log")}
        options = [f"--key-file={key}", f"--pid-file={self.root}/munged.pid", f"--socket={munge['socket']}"]
        self._run("munged", *options, f"--seed-file={munge['seed']}", f"--log-file={munge['log']}")
        self._run("slurmctld", "-f", str(self.conf))
        self._run("slurmd", "-f", str(self.conf))
        deadline = time.monotonic() + START_S
        while self._run("sinfo", "-h", "-o", "%T", check=False).split()[:1] != ["idle"]:
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the node did not become idle within {START_S:g} s; see {self.root}/*.log")
            time.sleep(0.2)
        return {"SLURM_CONF": str(self.conf)}

    def stop(self) -> None:
        """Cancel all jobs and end the daemons, by the pid that each has written."""
        if self._pid("slurmctld"):
            jobs = self._run("squeue", "-h", "-o", "%A", check=False).split()
            self._run("scancel", *sorted(set(jobs)), check=False) if jobs else None
        for name in reversed(DAEMONS):
            pid = self._pid(name)
            deadline = time.monotonic() + STOP_S
            while pid and _is_alive(pid):
                os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
                time.sleep(0.1)

    def _pid(self, name: str) -> int:
        path = self.root / f"{name}.pid"
        text = path.read_text().strip() if path.exists() else ""
        return int(text) if text.isdigit() and _is_alive(int(text)) else 0

    def _settings(self) -> str:
        with open("/proc/meminfo") as handle:
            total = next(int(line.split()[1]) for line in handle if line.startswith("MemTotal"))
        port = _free_ports(110)
        return SETTINGS.format(
            host=socket.gethostname().split(".")[0], root=self.root, port=port, node_port=port + 1, first=port + 2,
            last=port + 100, cpus=os.cpu_count(), memory=total // 1024 - 512,
        )  # fmt: skip

    def _run(self, *command: str, check: bool = True) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}; see {self.root}/*.log")
        return done.stdout


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # one that nobody has waited for


def _free_ports(count: int) -> int:
    """Return the first of `count` ports in a row, of which the first two are free now."""
    for start in range(20000 + os.getpid() % 100 * 110, 60000, count):
        try:
            for port in (start, start + 1):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return start
    raise RuntimeError("no free ports")


if __name__ == "__main__":
    sys.exit(why_not() or 0)

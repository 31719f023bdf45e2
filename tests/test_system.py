"""system: what control groups, the affinity mask and the kernel's files allow, on trees that the tests write."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from woolly import system

MIB = 1 << 20


def tree(root: Path, **files: str) -> Path:
    """A fake root with the given files; `__` in a name is a slash."""
    for name, text in files.items():
        write(root, name.replace("__", "/"), text)
    return root


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def mount_v2(root: Path, group: str, *, top: str = "/", point: str = "/sys/fs/cgroup") -> None:
    write(root, "proc/self/cgroup", f"0::{group}\n")
    write(
        root, "proc/self/mountinfo", f"31 23 0:28 {top} {point} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )


def mount_v1(root: Path, group: str, *, top: str = "/") -> None:
    write(root, "proc/self/cgroup", f"5:memory:{group}\n4:cpu,cpuacct:{group}\n1:name=systemd:/init.scope\n")
    write(
        root,
        "proc/self/mountinfo",
        f"31 23 0:28 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 23 0:29 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        f"33 23 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n",
    )


def siblings(root: Path, *groups: str) -> None:
    for group in groups:
        for cpu in group.split(","):
            write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", group + "\n")


def meminfo(root: Path, available: int) -> None:
    write(root, "proc/meminfo", f"MemTotal:       99999999 kB\nMemAvailable:   {available // 1024} kB\n")


def test_f11_a_quota_of_one_and_a_half_cores_of_sixteen_is_one_thread(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/job")
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", "150000 100000\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 1


def test_a_cpuset_of_two_of_sixteen_is_two_threads(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/job")
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", "800000 100000\n")
    assert system.cores(root=tmp_path, allowed={3, 7}) == 2


def test_half_a_core_is_still_one_thread(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert system.cores(root=tmp_path, allowed=range(4)) == 1


def test_f11_no_quota_leaves_the_affinity_mask(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/job")
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", "max 100000\n")
    assert system.cores(root=tmp_path, allowed=range(6)) == 6


def test_f11_the_smallest_quota_of_all_ancestors_counts(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/team/job/step")
    write(tmp_path, "sys/fs/cgroup/team/job/step/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/team/job/cpu.max", "700000 100000\n")
    write(tmp_path, "sys/fs/cgroup/team/cpu.max", "300000 100000\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 3


def test_f11_a_version_1_quota_counts(tmp_path: Path) -> None:
    mount_v1(tmp_path, "/docker/abc")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 2


def test_a_container_that_does_not_see_its_path_reads_the_root_of_the_mount(tmp_path: Path) -> None:
    mount_v1(tmp_path, "/docker/abc")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 3


@pytest.mark.parametrize(
    ("group", "top"),
    [
        ("/docker/abc/inner", "/docker/abc"),
        ("/../other/job", "/"),
        ("/docker/abc", "/docker/abc"),
        ("/x", "/docker/abc"),
    ],
)
def test_the_mount_s_own_group_is_found_whatever_the_path_says(tmp_path: Path, group: str, top: str) -> None:
    mount_v2(tmp_path, group, top=top)
    write(tmp_path, "sys/fs/cgroup/cpu.max", "400000 100000\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 4


def test_a_group_below_the_mount_s_root_is_read_there(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/docker/abc/inner", top="/docker/abc")
    write(tmp_path, "sys/fs/cgroup/inner/cpu.max", "200000 100000\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 2


def test_on_a_hybrid_host_both_versions_count(tmp_path: Path) -> None:
    tree(
        tmp_path,
        proc__self__cgroup="2:cpu:/a\n1:memory:/a\n0::/b\n",
        proc__self__mountinfo=(
            "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "32 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "33 23 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        ),
    )
    meminfo(tmp_path, 4096 * MIB)
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "500000")
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000")
    write(tmp_path, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", str(512 * MIB))
    write(tmp_path, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", str(12 * MIB))
    assert (system.cores(root=tmp_path, allowed=range(16)), system.memory(root=tmp_path)) == (5, 500 * MIB)
    write(tmp_path, "sys/fs/cgroup/unified/b/cpu.max", "200000 100000")
    write(tmp_path, "sys/fs/cgroup/unified/b/memory.max", str(300 * MIB))
    assert (system.cores(root=tmp_path, allowed=range(16)), system.memory(root=tmp_path)) == (2, 300 * MIB)


def test_hyper_threads_of_one_core_count_once(tmp_path: Path) -> None:
    siblings(tmp_path, "0,4", "1,5", "2,6", "3,7")
    assert system.cores(root=tmp_path, allowed=range(8)) == 4
    assert system.cores(root=tmp_path, allowed={0, 4, 1}) == 2


def test_f11_more_threads_than_can_run_are_as_many_as_can_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    siblings(tmp_path, "0,1", "2,3")
    for _ in range(2):
        assert system.threads(640, root=tmp_path, allowed=range(4)) == 4
    assert [record.getMessage() for record in caplog.records] == [
        "woolly: 640 threads are asked for; 4 compute, as no more can run at the same time"
    ]
    assert system.threads(3, root=tmp_path, allowed=range(4)) == 3
    assert system.threads(None, root=tmp_path, allowed=range(4)) == 2
    mount_v2(tmp_path, "/job")
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", "150000 100000\n")
    assert system.threads(3, root=tmp_path, allowed=range(4)) == 1


def test_efficiency_cores_are_left_out(tmp_path: Path) -> None:
    for cpu, capacity in enumerate([1024, 1024, 400, 400]):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", f"{capacity}\n")
    assert system.cores(root=tmp_path, allowed=range(4)) == 2
    assert system.cores(root=tmp_path, allowed={2, 3}) == 2


def test_a_small_difference_of_frequency_is_no_reason_to_leave_a_core_out(tmp_path: Path) -> None:
    for cpu, khz in enumerate([4_900_000, 4_500_000, 3_000_000]):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", f"{khz}\n")
    assert system.cores(root=tmp_path, allowed=range(3)) == 2


def test_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    meminfo(tmp_path, 3000 * MIB)
    assert system.memory(root=tmp_path) == 3000 * MIB


@pytest.mark.parametrize("name", ["memory.max", "memory.high"])
def test_a_version_2_memory_limit_counts_less_what_is_used_and_not_idle(tmp_path: Path, name: str) -> None:
    meminfo(tmp_path, 8000 * MIB)
    mount_v2(tmp_path, "/team/job")
    write(tmp_path, "sys/fs/cgroup/team/job/memory.max", "max\n")
    write(tmp_path, f"sys/fs/cgroup/team/{name}", f"{1000 * MIB}\n")
    write(tmp_path, "sys/fs/cgroup/team/memory.current", f"{600 * MIB}\n")
    write(tmp_path, "sys/fs/cgroup/team/memory.stat", f"anon 5\nfile {250 * MIB}\ninactive_file {200 * MIB}\n")
    assert system.memory(root=tmp_path) == 600 * MIB


def test_a_version_1_memory_limit_counts_and_its_word_for_none_does_not(tmp_path: Path) -> None:
    meminfo(tmp_path, 8000 * MIB)
    mount_v1(tmp_path, "/job")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", f"{7000 * MIB}\n")
    assert system.memory(root=tmp_path) == 8000 * MIB
    write(tmp_path, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", f"{400 * MIB}\n")
    write(tmp_path, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", f"{300 * MIB}\n")
    write(tmp_path, "sys/fs/cgroup/memory/job/memory.stat", f"inactive_file 1\ntotal_inactive_file {50 * MIB}\n")
    assert system.memory(root=tmp_path) == 150 * MIB


def test_a_group_beyond_its_limit_leaves_nothing_and_not_less(tmp_path: Path) -> None:
    meminfo(tmp_path, 8000 * MIB)
    mount_v2(tmp_path, "/")
    write(tmp_path, "sys/fs/cgroup/memory.high", f"{100 * MIB}\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", f"{120 * MIB}\n")
    assert system.memory(root=tmp_path) == 0


def test_the_limit_of_address_space_counts_less_what_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo(tmp_path, 8000 * MIB)
    page = resource.getpagesize()
    write(tmp_path, "proc/self/statm", f"{100 * MIB // page} 7 7 7 0 7 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (500 * MIB, resource.RLIM_INFINITY))
    assert system.memory(root=tmp_path) == 400 * MIB


def test_a_system_that_tells_nothing_limits_nothing(tmp_path: Path) -> None:
    assert system.cores(root=tmp_path, allowed=range(5)) == 5
    assert system.memory(root=tmp_path) > 0
    assert system.usage(root=tmp_path).peak > MIB


def test_strange_lines_in_the_kernel_s_files_are_passed_over(tmp_path: Path) -> None:
    mount_v2(tmp_path, "/a b", point="/sys/fs/my\\040groups")
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.write_text("short line\n1 2 0:1 / /x rw - overlay\n" + mountinfo.read_text())
    write(tmp_path, "sys/fs/my groups/a b/cpu.max", "300000 100000\n")
    write(tmp_path, "sys/fs/my groups/cpu.max", "300000 0\n")
    assert system.cores(root=tmp_path, allowed=range(16)) == 3


def test_usage_is_read_from_the_kernel(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/status", "Name:\tpython\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n")
    assert system.usage(root=tmp_path) == system.Usage(current=2000 * 1024, peak=3000 * 1024)


def test_this_machine_gives_believable_numbers() -> None:
    now = system.usage()
    assert system.cores() >= 1
    assert system.memory() > MIB
    assert MIB < now.current <= now.peak


def online(root: Path, cpus: str) -> None:
    write(root, "sys/devices/system/cpu/online", cpus + "\n")


@pytest.mark.parametrize(
    ("cpus", "quota", "allowed", "threads", "limit"),
    [
        ("0-15", "150000 100000", range(16), 1, "quota"),
        ("0-15", "1600000 100000", range(16), 16, "none"),
        ("0-15", "max 100000", {3, 7}, 2, "affinity"),
        ("0-1,4-5", "max 100000", (0, 1, 4, 5), 4, "none"),
    ],
)
def test_what_limits_the_threads_has_a_name(
    tmp_path: Path, cpus: str, quota: str, allowed: range, threads: int, limit: str
) -> None:
    mount_v2(tmp_path, "/job")
    online(tmp_path, cpus)
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", quota + "\n")
    cores = system.count_cores(root=tmp_path, allowed=allowed)
    assert (cores.threads, cores.limit) == (threads, limit)


def test_siblings_and_efficiency_cores_are_named_as_limits(tmp_path: Path) -> None:
    online(tmp_path, "0-3")
    siblings(tmp_path, "0,1", "2,3")
    assert system.count_cores(root=tmp_path, allowed=range(4)).limit == "siblings"
    for cpu, speed in enumerate((1024, 1024, 400, 400)):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", f"{speed}\n")
    cores = system.count_cores(root=tmp_path, allowed=range(4))
    assert (cores.limit, cores.fast, cores.physical, cores.threads) == ("efficiency", 2, 1, 1)


def test_every_limit_of_memory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount_v2(tmp_path, "/job")
    meminfo(tmp_path, 900 * MIB)
    write(tmp_path, "sys/fs/cgroup/job/memory.max", f"{300 * MIB}\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.current", f"{100 * MIB}\n")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (500 * MIB, 500 * MIB))
    limits = {room.kind: room for room in system.memory_limits(root=tmp_path)}
    assert {kind: room.free for kind, room in limits.items()} == {
        "machine": 900 * MIB,
        "cgroup": 200 * MIB,
        "rlimit": 500 * MIB,
    }
    assert limits["cgroup"].what == "memory.max of the control group /sys/fs/cgroup/job"
    assert system.memory(root=tmp_path) == 200 * MIB


def nodes(root: Path, *groups: str) -> None:
    for number, group in enumerate(groups):
        for cpu in group.split(","):
            (root / f"sys/devices/system/cpu/cpu{cpu}/node{number}").mkdir(parents=True)


def test_parts_of_the_cores_do_not_overlap_and_keep_siblings_together(tmp_path: Path) -> None:
    siblings(tmp_path, "0,4", "1,5", "2,6", "3,7")
    assert system.shares(2, root=tmp_path, allowed=range(8)) == [{0, 4, 1, 5}, {2, 6, 3, 7}]
    assert system.shares(3, root=tmp_path, allowed=range(8)) == [{0, 4, 1, 5}, {2, 6}, {3, 7}]
    assert system.shares(2, root=tmp_path, allowed=(0, 1, 5)) == [{0}, {1, 5}]


def test_a_part_of_the_cores_lies_within_one_memory_node(tmp_path: Path) -> None:
    nodes(tmp_path, "0,2,4", "1,3,5")
    assert system.shares(2, root=tmp_path, allowed=range(6)) == [{0, 2, 4}, {1, 3, 5}]
    assert system.shares(4, root=tmp_path, allowed=range(6)) == [{0, 2}, {4}, {1, 3}, {5}]
    assert system.nodes(root=tmp_path, allowed=range(6)) == 2
    assert system.nodes(root=tmp_path, allowed=(0, 4)) == 1


def test_a_machine_that_tells_of_no_nodes_has_one(tmp_path: Path) -> None:
    assert system.nodes(root=tmp_path, allowed=range(4)) == 1


def test_more_parts_than_cores_share_them(tmp_path: Path) -> None:
    assert system.shares(3, root=tmp_path, allowed=range(2)) == [{0}, {1}, {0}]

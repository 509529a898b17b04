"""A machine with NVIDIA GPUs that aren't there: the stand-in library's file, and the files of a host."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent / "standin.c"
LOST, DRIVER_NOT_LOADED, NOT_SUPPORTED, UNKNOWN = 15, 9, 3, 999
XID, DOUBLE_BIT_ECC = 8, 2
WHOLE = 0xFFFFFFFF
DRIVER_VERSION = "580.126.09"

# An A100's MIG devices as nvidia-smi lists them: GI, CI, profile, start, size, MiB, then what each has.
SMALL = (7, 0, 19, 4, 1, 4864, 14, 1, 0, 0, 0, 0, 1, 1)  # 1g.5gb at slice 4
LARGE = (2, 0, 9, 0, 4, 19968, 42, 3, 2, 0, 0, 0, 3, 3)  # 3g.20gb at slices 0 to 3
HALVES = [  # the same GPU instance cut in two: 1c.3g.20gb and 2c.3g.20gb
    (2, 0, 9, 0, 4, 19968, 14, 3, 2, 0, 0, 0, 3, 1),
    (2, 1, 9, 0, 4, 19968, 28, 3, 2, 0, 0, 0, 3, 2),
]


def build(folder: Path) -> Path:
    """Compile the stand-in library."""
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    name = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run([*command, name, "-o", str(library), str(SOURCE)], check=True)
    return library


@dataclass
class Machine:
    """What the stand-in library says; every change is written at once."""

    file: Path
    root: Path
    library: Path
    lines: list[str] = field(default_factory=list)
    events: int = 0

    def add(self, *lines: str) -> None:
        """Say more."""
        self.lines += lines
        self._write()

    def take(self, *lines: str) -> None:
        """Say something no more."""
        for line in lines:
            self.lines.remove(line)
        self._write()

    def gpu(self, model: str, minor: int, *mig: tuple[int, ...], numa: int | None = 0) -> None:
        """Put a GPU in, with its files."""
        index = sum(line.startswith("gpu ") for line in self.lines)
        self.add(f"gpu {model} {minor}", *(f"mig {index} {' '.join(map(str, one))}" for one in mig))
        _device_file(self.root / f"dev/nvidia{minor}")
        if numa is not None:
            self._pci(minor, numa)
        for gpu_instance, compute_instance, *_ in mig:
            self._capabilities(minor, gpu_instance, compute_instance)

    def event(
        self, type_: int, data: int = 0, *, gpu: int = 0, instance: tuple[int, int] = (WHOLE, WHOLE)
    ) -> None:
        """Let an event happen."""
        self.events += 1
        self.add(f"event {self.events} {gpu} {type_} {data} {instance[0]} {instance[1]}")

    def _write(self) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in self.lines))
        fresh.replace(self.file)

    def _pci(self, minor: int, numa: int) -> None:
        bus = 0x1B + 0x20 * minor
        address = f"0000:{bus:02x}:00.0"
        device = self.root / f"sys/devices/pci0000:{bus - 1:02x}/0000:{bus - 1:02x}:01.0/{address}"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{numa}\n")
        link = self.root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)

    def _capabilities(self, minor: int, gpu_instance: int, compute_instance: int) -> None:
        folder = self.root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"
        number = 100 * gpu_instance
        for file, cap in (
            (folder / "access", number),
            (folder / f"ci{compute_instance}/access", number + 1 + compute_instance),
        ):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"DeviceFileMinor: {cap}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
            _device_file(self.root / f"dev/nvidia-caps/nvidia-cap{cap}")


def install_driver(root: Path) -> None:
    """The files of NVIDIA's driver on a host, with links as ldconfig and packages make them."""
    for name in ("nvidiactl", "nvidia-uvm"):
        _device_file(root / "dev" / name)
    folder = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml"):
        (folder / f"{name}.so.{DRIVER_VERSION}").touch()
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{DRIVER_VERSION}")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "libcuda.so.1.1").symlink_to("libother.so")
    (folder / "libnvidia-ml.so.570.86.15").touch()  # of an earlier driver
    (root / "usr/bin").mkdir()
    (root / "usr/bin/nvidia-smi").touch()


def _device_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()

"""Regenerates the gRPC stubs in fake_driver/api from its .proto files: `python generate.py [OUTPUT_ROOT]`."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent


def generate(output: Path) -> list[Path]:
    """Write `fake_driver/api/*_pb2*.py*` below `output` and return the files written.

    Raises:
        RuntimeError: protoc refused a .proto file; its own message is on stderr.
    """
    protos = sorted((ROOT / "fake_driver" / "api").glob("*.proto"))
    well_known = resources.files("grpc_tools") / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{well_known}",
            f"--python_out={output}",
            f"--pyi_out={output}",
            f"--grpc_python_out={output}",
            *(str(proto) for proto in protos),
        ]
    )
    if code != 0:
        raise RuntimeError(f"protoc failed with exit code {code}")
    return sorted((output / "fake_driver" / "api").glob("*_pb2*.py*"))


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)

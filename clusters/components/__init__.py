"""The programs that a local cluster consists of: where they come from, and the pod image.

A provider asks a `ComponentSource` for `Program`s and gets their paths.
"""

from clusters.components.auto import AutoSource
from clusters.components.build import BuildSource
from clusters.components.directory import DirectorySource
from clusters.components.download import DownloadSource
from clusters.components.image import PAUSE_IMAGE, POD_IMAGE, write_archive
from clusters.components.interface import ComponentSource, Program, Progress, silent
from clusters.components.programs import CONTROL_PLANE, HELM, KIND, NODE, NODE_IMAGE, PROGRAMS, SIMULATION

__all__ = [
    "CONTROL_PLANE",
    "HELM",
    "KIND",
    "NODE",
    "NODE_IMAGE",
    "PAUSE_IMAGE",
    "POD_IMAGE",
    "PROGRAMS",
    "SIMULATION",
    "AutoSource",
    "BuildSource",
    "ComponentSource",
    "DirectorySource",
    "DownloadSource",
    "Program",
    "Progress",
    "silent",
    "write_archive",
]

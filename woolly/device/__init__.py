"""device: what computes a plan: the processor of this machine, in `cpu`.

In: a program and an open file, then one batch a step. Out: the outputs of its rows, and tokens picked by their logits.
A device packs the weights, keeps the cache and runs the instructions; it decides nothing about a model.
Each is a folder and a row of DEVICES; `device.py` says what a row has, `runner.py` what it computes with.
"""

from __future__ import annotations

from woolly.device.batch import Batch, StepSize
from woolly.device.cpu import CPU
from woolly.device.device import Device
from woolly.device.queue import DeviceQueue
from woolly.device.runner import Runner

DEVICES: dict[str, Device] = {device.name: device for device in (CPU,)}
DEFAULT_DEVICE = CPU  # what computes a model of which nobody says otherwise

__all__ = ["DEFAULT_DEVICE", "DEVICES", "Batch", "Device", "DeviceQueue", "Runner", "StepSize"]

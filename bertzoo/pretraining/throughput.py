"""How much arithmetic the device could do."""

from bertzoo.accelerator import accelerator

# Dense bfloat16 (T4, V100: float16) operations a second, from the makers' data sheets, by a part of the device's name.
PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
    "4090": 165e12,
    "3090": 71e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


def peak_flops(dtype: str) -> float | None:
    """What the first device can do a second at most; None where that is not known, as for CPUs and float32."""
    if "16" not in str(dtype):
        return None
    name = accelerator() or ""
    return next((peak for part, peak in PEAKS.items() if part in name), None)

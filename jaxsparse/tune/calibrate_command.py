"""`jaxsparse calibrate`: measures the rates of this machine's device and keeps them in the user's
cache.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from jaxsparse.core.device import home_platform
from jaxsparse.select.roofline.calibration import keep
from jaxsparse.select.roofline.machine import Machine
from jaxsparse.select.table import shipped
from jaxsparse.tune.calibrate import steps_of, this_machine


def calibrate(
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Start no measurement of a variant after this time.")
    ] = 240.0,
    out: Annotated[
        Path | None, typer.Option(help="Write to this folder, not to the user's cache.")
    ] = None,
) -> None:
    """Measure this device's memory bandwidth, arithmetic rates and launch time: at most five
    minutes.

    The choice of kernels uses them where no table of the device is shipped.
    """
    console = Console()
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("calibrating", total=sum(1 for _ in steps_of(home_platform())))
        machine = this_machine(seconds, lambda what: bar.update(task, description=what, advance=1))
    path = keep(machine, out)
    _show(machine, console)
    if machine.device in shipped():
        used = "not used, because a table of this device is shipped"
    else:
        used = "used from now on"
    console.print(f"{path}: {used}", highlight=False, soft_wrap=True)


def _show(machine: Machine, console: Console) -> None:
    shown = Table(title=f"{machine.device}, {machine.processors} processors")
    shown.add_column("rate")
    shown.add_column("measured", justify="right")
    shown.add_row("copy", f"{machine.copy * 1e-6:.3g} TB/s")
    shown.add_row("copy in the cache", f"{machine.l2 * 1e-6:.3g} TB/s")
    gpu = home_platform() == "cuda"
    shown.add_row("bfloat16" if gpu else "float32", f"{2e-6 * machine.half:.4g} TFLOP/s")
    if gpu:
        shown.add_row("TF32", f"{2e-6 * machine.tf32:.4g} TFLOP/s")
    shown.add_row("launch", f"{machine.launch:.2f} us")
    for dtype, variant, times in machine.variants:
        shown.add_row(f"{variant} {dtype}", f"{times:.2f} times the expected time")
    console.print(shown)

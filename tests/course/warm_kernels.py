"""A pytest plugin for nbval: each kernel is a fork of one process that has imported what every notebook imports.

A backend, Keras and Matplotlib take 5 to 10 seconds to import, half as long as a notebook computes. Nothing is computed
before the fork, so a notebook finds what it would find in a process of its own, only sooner.
"""

import multiprocessing
import os
import sys

from jupyter_client.provisioning import local_provisioner

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["bertzoo", "keras", "matplotlib.pyplot", "ipykernel.ipkernel", "ipykernel.kernelapp"])
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # a kernel sets it too, but after the import


def serve(connection_file: str, folder: str, environment: dict[str, str], ready) -> None:
    """Runs a kernel until it is told to end."""
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()  # jupyter_client ends the whole group of a kernel
    ready.set()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # as nbval asks
    os.chdir(folder)
    os.environ.update(environment)
    sys.path.insert(0, "")
    IPKernelApp.launch_instance(["-f", connection_file])


class Kernel(SERVER.Process):
    """With what jupyter_client asks of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> int | None:
        self.join()
        return self.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def launch(command: list[str], *, cwd: str, env: dict[str, str], **_) -> Kernel:
    """In place of `jupyter_client.launcher.launch_kernel`; the command ends with the connection file."""
    ready = SERVER.Event()
    kernel = Kernel(target=serve, args=(command[-1], cwd, env, ready), daemon=True)
    kernel.start()
    ready.wait(60)  # seconds; nbval says what is wrong with a kernel that never answers
    return kernel


local_provisioner.launch_kernel = launch

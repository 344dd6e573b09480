"""A repository with the Python that has NumPy and PyTorch; empty on machines without it."""

# deploy/install_packages --with-python makes the environment in this folder of the user's home.
_ENVIRONMENT = "/.cache/pawl/python"

def _local_python_impl(context):
    home = context.os.environ.get("HOME", "/root")
    interpreter = home + _ENVIRONMENT + "/bin/python3"

    # The last file that install_packages writes.
    is_complete = context.path(home + _ENVIRONMENT + "/versions").exists
    context.file("defs.bzl", "HAVE_PYTHON = %s\nPYTHON = %r\n" % (is_complete, interpreter))
    context.file("BUILD", "")

# Tests of the Python package are declared only if @local_python//:defs.bzl says HAVE_PYTHON.
local_python = repository_rule(
    implementation = _local_python_impl,
    environ = ["HOME"],
    local = True,
)

"""The interface digest that a library loaded at run time must share with its loader."""

def interface_header(name, constant, srcs, out):
    """Makes a header whose string `constant` is a digest of the sources, to compare interfaces.

    Args:
      name: the name of the rule
      constant: the name of the constant, in namespace pawl
      srcs: the headers that both sides include
      out: the header
    """
    path = native.package_name() + "/" + out
    guard = "PAWL_" + path.upper().replace("/", "_").replace(".", "_") + "_"
    native.genrule(
        name = name,
        srcs = srcs,
        outs = [out],
        cmd = """
digest=$$(cat $(SRCS) | sha256sum | cut -c1-16)
cat >$@ <<END
// Generated: a digest to compare interfaces.
#ifndef {guard}
#define {guard}

namespace pawl {{

inline constexpr char {constant}[] = "$$digest";

}}  // namespace pawl

#endif  // {guard}
END
""".format(guard = guard, constant = constant),
    )

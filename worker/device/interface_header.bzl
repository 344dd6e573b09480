"""The interface digest that a library loaded at run time must share with its loader."""

def interface_header(name, constant, srcs, out):
    """A header with a digest of the sources, `constant`, that tells one state of an interface from another.

    Args:
      name: of the rule
      constant: the name of the constant, in namespace pawl
      srcs: the headers that both sides are compiled with
      out: the header
    """
    guard = "PAWL_" + (native.package_name() + "/" + out).upper().replace("/", "_").replace(".", "_") + "_"
    native.genrule(
        name = name,
        srcs = srcs,
        outs = [out],
        cmd = """
digest=$$(cat $(SRCS) | sha256sum | cut -c1-16)
cat >$@ <<END
// Generated: tells one state of an interface from another.
#ifndef {guard}
#define {guard}

namespace pawl {{

inline constexpr char {constant}[] = "$$digest";

}}  // namespace pawl

#endif  // {guard}
END
""".format(guard = guard, constant = constant),
    )

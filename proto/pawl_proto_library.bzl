"""C++ code generated from .proto files by the system's protoc and gRPC plugin."""

def pawl_proto_library(name, src, deps = [], grpc = False):
    """Generates and compiles the C++ classes of one .proto file.

    Args:
      name: the cc_library's name.
      src: the .proto file; other files import it by its path from the workspace root.
      deps: pawl_proto_library targets of the files it imports.
      grpc: generate service stubs too, as a second library `<name>_grpc`, so that
        code that needs only the messages does not depend on gRPC.
    """
    stem = src[:-len(".proto")]
    native.filegroup(
        name = name + "_src",
        srcs = [src] + [dep + "_src" for dep in deps],
        visibility = ["//visibility:public"],
    )
    native.genrule(
        name = name + "_generate",
        srcs = [":" + name + "_src"],
        outs = [stem + ".pb.h", stem + ".pb.cc"],
        cmd = "protoc -I. --cpp_out=$(GENDIR) %s/%s" % (native.package_name(), src),
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        copts = ["-w"],
        visibility = ["//visibility:public"],
        deps = deps + ["//third_party:protobuf"],
    )
    if grpc:
        native.genrule(
            name = name + "_generate_grpc",
            srcs = [":" + name + "_src"],
            outs = [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"],
            cmd = ("protoc -I. --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " +
                   "--grpc_out=$(GENDIR) %s/%s") % (native.package_name(), src),
        )
        native.cc_library(
            name = name + "_grpc",
            srcs = [stem + ".grpc.pb.cc"],
            hdrs = [stem + ".grpc.pb.h"],
            copts = ["-w"],
            visibility = ["//visibility:public"],
            deps = [":" + name, "//third_party:grpc"],
        )

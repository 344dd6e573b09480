"""clang-tidy over the sources of C++ targets: `bazel build --config=tidy //server/shard/...` (.bazelrc has the config).

An aspect, so that Bazel makes the generated headers first, runs as many at a time as it compiles, and runs a source again
only when it, a header or .clang-tidy has changed. What is found is an error of the build; --keep_going shows all of it.
"""

# Only what says what a source means: gcc's warnings and optimisations are not clang's.
def _arguments(context, compilation, source, answer):
    arguments = context.actions.args()
    arguments.add_all([answer, context.file._config, source])
    arguments.add_all(context.fragments.cpp.cxxopts)

    # A seventh of the time: templates that nobody uses, of which system headers are full, are passed over.
    arguments.add("-fdelayed-template-parsing")
    arguments.add_all(compilation.defines, before_each = "-D")
    arguments.add_all(compilation.local_defines, before_each = "-D")
    arguments.add_all(compilation.quote_includes, before_each = "-iquote")
    arguments.add_all(compilation.includes, before_each = "-I")
    arguments.add_all(compilation.system_includes, before_each = "-isystem")
    return arguments

def _tidy_impl(target, context):
    if CcInfo not in target or "no-tidy" in getattr(context.rule.attr, "tags", []):
        return []
    compilation = target[CcInfo].compilation_context
    answers = []
    for source in getattr(context.rule.files, "srcs", []):
        if not source.is_source or not source.basename.endswith(".cc"):
            continue
        answer = context.actions.declare_file("%s.%s.tidy" % (context.rule.attr.name, source.basename))
        arguments = _arguments(context, compilation, source, answer)
        context.actions.run_shell(
            # What it found is shown; how many warnings in system headers it has kept to itself is not.
            command = """answer="$1" config="$2" source="$3"; shift 3
                command -v clang-tidy > /dev/null ||
                { echo "there is no clang-tidy; run deploy/install_packages" >&2; exit 1; }
                clang-tidy --quiet --config-file="$config" "$source" -- -xc++ -w "$@" > "$answer" 2> "$answer.err" ||
                { cat "$answer" "$answer.err" >&2; exit 1; }""",
            arguments = [arguments],
            inputs = depset(
                [context.file._config] + context.rule.files.srcs,
                transitive = [compilation.headers],
            ),
            mnemonic = "ClangTidy",
            outputs = [answer],
            progress_message = "Looking at %s" % source.short_path,
            use_default_shell_env = True,
        )
        answers.append(answer)
    return [OutputGroupInfo(tidy = depset(answers))]

tidy = aspect(
    implementation = _tidy_impl,
    attrs = {"_config": attr.label(allow_single_file = True, default = "//:.clang-tidy")},
    fragments = ["cpp"],
)

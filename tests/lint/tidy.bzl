"""Runs clang-tidy on C++ targets: `bazel build --config=tidy //server/shard/...` (see .bazelrc).

As an aspect it gets the generated headers, runs in parallel, and checks a source again only when
the source, a header or .clang-tidy has changed. Findings fail the build; --keep_going shows all.
"""

# Passes only options that affect the meaning of a source. clang lacks some of gcc's other options.
def _arguments(context, compilation, source, answer):
    arguments = context.actions.args()
    arguments.add_all([answer, context.file._config, source])
    arguments.add_all(context.fragments.cpp.cxxopts)

    # Skips unused templates in system headers, which saves six sevenths of the time.
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
        name = "%s.%s.tidy" % (context.rule.attr.name, source.basename)
        answer = context.actions.declare_file(name)
        arguments = _arguments(context, compilation, source, answer)
        context.actions.run_shell(
            # Shows findings, but not the number of suppressed warnings in system headers.
            command = """answer="$1" config="$2" source="$3"; shift 3
                command -v clang-tidy > /dev/null ||
                { echo "clang-tidy is not installed; run deploy/install_packages" >&2; exit 1; }
                clang-tidy --quiet --config-file="$config" "$source" -- -xc++ -w "$@" \
                    > "$answer" 2> "$answer.err" ||
                { cat "$answer" "$answer.err" >&2; exit 1; }""",
            arguments = [arguments],
            inputs = depset(
                [context.file._config] + context.rule.files.srcs,
                transitive = [compilation.headers],
            ),
            mnemonic = "ClangTidy",
            outputs = [answer],
            progress_message = "Checking %s" % source.short_path,
            use_default_shell_env = True,
        )
        answers.append(answer)
    return [OutputGroupInfo(tidy = depset(answers))]

tidy = aspect(
    implementation = _tidy_impl,
    attrs = {"_config": attr.label(allow_single_file = True, default = "//:.clang-tidy")},
    fragments = ["cpp"],
)

#include "deploy/pawlctl/command_line.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr int kRan = 77;

struct Result {
  int code;
  std::string out;
  std::string err;
};

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    CLI::App& run = line_.AddCommand("run", "runs", "Runs a job.", [] { return kRan; });
    AddFlag(run, "--job", "FILE", job_, "The job file.", {.environment = "COMMAND_LINE_TEST_JOB"});
    AddFlag(run, "--servers", "N", servers_, "How many servers; default: 1.");
    AddFlag(run, "--values", "X,Y", values_, "Numbers.");
    AddFlag(run, "--timeout", "DURATION", timeout_, "How long.");
    AddRepeatedFlag(run, "--set", "PATH=VALUE", set_, "A field of the job.");
    CLI::Option* const json = AddSwitch(run, "--json", json_, "JSON.");
    AddFlag(run, "--seconds", "N", seconds_, "With --json.", {.needs = json});
    CLI::App& node = line_.AddCommand("node", "runs a program", "Runs one.", [] { return kRan; });
    AddSwitch(node, "--json", json_, "JSON.");
    line_.AddProgram(node, "PROGRAM", program_, "The program.");
    const auto print = [] {
      std::puts("text");
      return kExitDone;
    };
    line_.AddCommand("print", "prints", "Prints.", print);
    line_.PrintsProgress(line_.AddCommand("train", "trains", "Trains.", print));
    CLI::App& drain = line_.AddCommand("drain", "drains", "Drains.", [] { return kRan + 1; });
    AddFlag(drain, "node,--node", "NODE", node_, "The node.", {.required = true});
    AddBareFlag(drain, "--wait", "DURATION", "10m", wait_, "How long.");
  }

  Result Run(std::vector<std::string> arguments) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = line_.Run(std::move(arguments));
    std::string out = testing::internal::GetCapturedStdout();
    return {code, std::move(out), testing::internal::GetCapturedStderr()};
  }

  // Every part must be in the message.
  void ExpectUsageError(std::vector<std::string> arguments, std::vector<std::string> parts) {
    const Result result = Run(std::move(arguments));
    EXPECT_EQ(result.code, kExitUsage) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts)
      EXPECT_TRUE(absl::StrContains(result.err, part)) << part << " is missing in " << result.err;
  }

  CommandLine line_{"pawlctl", "1.2.3"};
  std::string job_;
  uint32_t servers_ = 1;
  std::vector<float> values_;
  MonotonicDuration timeout_ = std::chrono::seconds(5);
  std::vector<std::string> set_;
  bool json_ = false;
  uint32_t seconds_ = 0;
  std::string node_;
  std::optional<MonotonicDuration> wait_;
  std::vector<std::string> program_;
};

TEST_F(CommandLineTest, ValuesFollowEqualsSignOrSpace) {
  EXPECT_EQ(Run({"run", "--job=a=b.pbtxt", "--servers", "3", "--json", "--values=0.5,-1",
                 "--timeout", "1m"})
                .code,
            kRan);
  EXPECT_EQ(job_, "a=b.pbtxt");
  EXPECT_EQ(servers_, 3u);
  EXPECT_TRUE(json_);
  EXPECT_EQ(values_, (std::vector<float>{0.5f, -1.0f}));
  EXPECT_EQ(timeout_, std::chrono::minutes(1));
}

TEST_F(CommandLineTest, FlagsMayComeBeforeTheCommand) {
  EXPECT_EQ(Run({"--job=a.pbtxt", "--servers", "3", "run", "--json"}).code, kRan);
  EXPECT_EQ(job_, "a.pbtxt");
  EXPECT_EQ(servers_, 3u);
  EXPECT_TRUE(json_);
  EXPECT_EQ(Run({"--version"}).out, "pawlctl 1.2.3\n");
}

TEST_F(CommandLineTest, SwitchTakesFalse) {
  json_ = true;
  EXPECT_EQ(Run({"run", "--json=false"}).code, kRan);
  EXPECT_FALSE(json_);
}

TEST_F(CommandLineTest, LastValueCounts) {
  EXPECT_EQ(Run({"run", "--servers=2", "--json", "--json", "--servers=3"}).code, kRan);
  EXPECT_EQ(servers_, 3u);
}

TEST_F(CommandLineTest, EmptyValueDoesNotTakeNextArgument) {
  EXPECT_EQ(Run({"run", "--job=", "--servers=3"}).code, kRan);
  EXPECT_EQ(job_, "");
  EXPECT_EQ(servers_, 3u);
}

TEST_F(CommandLineTest, ValueMayEndInEqualsSign) {
  EXPECT_EQ(Run({"run", "--set=data.test=", "--job=a=", "--set", "b="}).code, kRan);
  EXPECT_EQ(set_, (std::vector<std::string>{"data.test=", "b="}));
  EXPECT_EQ(job_, "a=");
  EXPECT_EQ(Run({"drain", "--node=server=="}).code, kRan + 1);
  EXPECT_EQ(node_, "server==");
}

TEST_F(CommandLineTest, RepeatedFlagKeepsAllValuesInOrder) {
  EXPECT_EQ(Run({"run", "--set=a=1", "--set", "b=[2,3]", "--set=a=3", "--json"}).code, kRan);
  EXPECT_EQ(set_, (std::vector<std::string>{"a=1", "b=[2,3]", "a=3"}));
}

TEST_F(CommandLineTest, EnvironmentGivesDefault) {
  setenv("COMMAND_LINE_TEST_JOB", "from the environment", 1);
  EXPECT_EQ(Run({"run"}).code, kRan);
  EXPECT_EQ(job_, "from the environment");
  EXPECT_EQ(Run({"run", "--job=given"}).code, kRan);
  EXPECT_EQ(job_, "given");
  unsetenv("COMMAND_LINE_TEST_JOB");
}

TEST_F(CommandLineTest, EnvironmentReplacesEmptyValue) {
  setenv("COMMAND_LINE_TEST_JOB", "from the environment", 1);
  EXPECT_EQ(Run({"run", "--job="}).code, kRan);
  EXPECT_EQ(job_, "from the environment");
  unsetenv("COMMAND_LINE_TEST_JOB");
}

TEST_F(CommandLineTest, UnknownFlagIsReportedWithKnownFlags) {
  ExpectUsageError({"run", "--sevrers=2"}, {"--sevrers", "--servers", "pawlctl run --help"});
  ExpectUsageError({"run", "--node=x"}, {"run has no flag --node"});
  ExpectUsageError({"drain", "--sevrers=2"}, {"--sevrers"});
}

TEST_F(CommandLineTest, ImpossibleValueIsReported) {
  ExpectUsageError({"run", "--servers=many"}, {"--servers=many", "whole number"});
  ExpectUsageError({"run", "--servers=-1"}, {"--servers=-1", "from 0 to 4294967295"});
  ExpectUsageError({"run", "--values=1,inf"}, {"--values=1,inf", "'inf' is not a finite number"});
  ExpectUsageError({"run", "--timeout=-1s"}, {"--timeout=-1s", "at most 24h"});
  ExpectUsageError({"drain", "server-1", "--wait=25h"}, {"--wait=25h", "at most 24h"});
}

TEST_F(CommandLineTest, MissingValueIsReported) {
  ExpectUsageError({"run", "--job"}, {"--job"});
  ExpectUsageError({"drain"}, {"--node=NODE is missing: The node."});
}

TEST_F(CommandLineTest, EmptyValueOfRequiredFlagIsMissing) {
  ExpectUsageError({"drain", "--node="}, {"--node=NODE is missing: The node."});
  ExpectUsageError({"drain", ""}, {"--node=NODE is missing: The node."});
  ExpectUsageError({"drain", "--node", ""}, {"--node=NODE is missing: The node."});
  EXPECT_EQ(Run({"drain", "--node=", "--node=server-1"}).code, kRan + 1);
  EXPECT_EQ(node_, "server-1");
}

TEST_F(CommandLineTest, FlagWithoutFlagThatItNeedsIsReported) {
  ExpectUsageError({"run", "--seconds=3"}, {"--seconds requires --json"});
  ExpectUsageError({"run", "--seconds=3", "--json=false"}, {"--seconds requires --json"});
  ExpectUsageError({"run", "--json", "--json=false", "--seconds=3"}, {"--seconds requires --json"});
  EXPECT_EQ(Run({"run", "--seconds=3", "--json"}).code, kRan);
  EXPECT_EQ(Run({"run", "--seconds=3", "--json=false", "--json=true"}).code, kRan);
}

TEST_F(CommandLineTest, FailedCheckIsReported) {
  CLI::App& check = line_.AddCommand("check", "checks", "Checks.", [] { return kRan; });
  SetCheck(check, [] { return absl::InvalidArgumentError("two of them exclude each other"); });
  ExpectUsageError({"check"}, {"two of them exclude each other", "pawlctl check --help"});
}

TEST_F(CommandLineTest, WordsAfterDashesArriveUnchanged) {
  const std::vector<std::string> words = {
      "train.py", "--layers", "[64,32]", "[\"a\",\"b\"]", "[]", "--prefix=", "",
      "--json",   "--help",   "--",      "node",          "{}", "-x=",
  };
  std::vector<std::string> arguments = {"node", "--"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  EXPECT_EQ(Run(arguments).code, kRan);
  EXPECT_EQ(program_, words);
  EXPECT_FALSE(json_);
}

TEST_F(CommandLineTest, ProgramMayFollowFlagsWithoutDashes) {
  EXPECT_EQ(Run({"node", "--json", "train.py", "--", "--json"}).code, kRan);
  EXPECT_EQ(program_, (std::vector<std::string>{"train.py", "--json"}));
  EXPECT_TRUE(json_);
}

TEST_F(CommandLineTest, WordsAfterDashesAreReportedWithoutProgram) {
  ExpectUsageError({"run", "--", "train.py"}, {"not expected: train.py"});
  EXPECT_EQ(Run({"drain", "--", "server-1"}).code, kRan + 1);
  EXPECT_EQ(node_, "server-1");
}

TEST_F(CommandLineTest, LostOutputIsAFailureUnlessItIsProgress) {
  EXPECT_EQ(Run({"print"}).code, kExitDone);
  for (const auto& [command, expected] :
       {std::pair("print", kExitFailed), std::pair("train", kExitDone)}) {
    std::FILE* const usual = stdout;
    stdout = std::fopen("/dev/full", "w");
    ASSERT_NE(stdout, nullptr);
    testing::internal::CaptureStderr();
    const int code = line_.Run({command});
    std::fclose(stdout);
    stdout = usual;
    EXPECT_EQ(code, expected);
    EXPECT_TRUE(absl::StrContains(testing::internal::GetCapturedStderr(), "could not be written"));
  }
}

TEST_F(CommandLineTest, StrayWordIsReported) {
  ExpectUsageError({"run", "job.pbtxt"}, {"'job.pbtxt' is not a flag"});
  ExpectUsageError({"drain", "server-1", "server-2"}, {"'server-2' is not a flag"});
  ExpectUsageError({"dance"}, {"there is no command 'dance'", "--help"});
  ExpectUsageError({}, {"Usage: pawlctl"});
}

TEST_F(CommandLineTest, WordStandsForFlag) {
  EXPECT_EQ(Run({"drain", "server-1"}).code, kRan + 1);
  EXPECT_EQ(node_, "server-1");
  EXPECT_FALSE(wait_.has_value());
  EXPECT_EQ(Run({"drain", "--node=server-2"}).code, kRan + 1);
  EXPECT_EQ(node_, "server-2");
}

TEST_F(CommandLineTest, BareFlagHasUsualValue) {
  EXPECT_EQ(Run({"drain", "--wait", "server-1"}).code, kRan + 1);
  EXPECT_EQ(node_, "server-1");
  EXPECT_EQ(wait_, std::chrono::minutes(10));
  EXPECT_EQ(Run({"drain", "--wait=5s", "server-1"}).code, kRan + 1);
  EXPECT_EQ(wait_, std::chrono::seconds(5));
}

TEST_F(CommandLineTest, HelpWinsOverMistakes) {
  for (const char* mistake : {"--nonsense", "--servers=many", "word"}) {
    const Result result = Run({"run", mistake, "--help"});
    EXPECT_EQ(result.code, kExitDone) << mistake;
    EXPECT_TRUE(absl::StrContains(result.out, "Runs a job.")) << result.out;
  }
  EXPECT_EQ(Run({"drain", "-h"}).code, kExitDone);
}

TEST_F(CommandLineTest, HelpShowsEveryFlag) {
  const std::string help = Run({"run", "--help"}).out;
  for (const char* part : {"Usage: pawlctl run [FLAGS]\n\nRuns a job.\n",
                           "Exit codes: ", "\n  --servers=N\n      How many servers; default: 1.\n",
                           "\n  --json\n", "\n  --set=PATH=VALUE\n"}) {
    EXPECT_TRUE(absl::StrContains(help, part)) << part << " is missing in\n" << help;
  }
  const std::string drain = Run({"drain", "--help"}).out;
  EXPECT_TRUE(absl::StrContains(drain, "Usage: pawlctl drain NODE [FLAGS]\n")) << drain;
  EXPECT_TRUE(absl::StrContains(drain, "\n  --wait[=DURATION]\n")) << drain;
}

TEST_F(CommandLineTest, HelpListsCommands) {
  for (const char* request : {"--help", "-h", "help"}) {
    const Result result = Run({request});
    EXPECT_EQ(result.code, kExitDone);
    EXPECT_TRUE(absl::StrContains(result.out, "Usage: pawlctl COMMAND [FLAGS]\n")) << result.out;
    EXPECT_TRUE(absl::StrContains(result.out, "\nCommands:\n  run          runs\n")) << result.out;
  }
}

TEST_F(CommandLineTest, VersionIsPrinted) {
  for (const char* request : {"--version", "version"}) {
    const Result result = Run({request});
    EXPECT_EQ(result.code, kExitDone);
    EXPECT_EQ(result.out, "pawlctl 1.2.3\n");
  }
}

}  // namespace
}  // namespace pawl

#include "deploy/pawlctl/command_line.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

ABSL_FLAG(int32_t, servers, 1, "how many servers");
ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(std::string, set, "", "a field of the job");
ABSL_FLAG(bool, json, false, "machine-readable");
ABSL_FLAG(bool, not_mine, false, "of another command");

namespace pawl {
namespace {

const CommandSpec kRun = {.name = "run",
                          .summary = "runs",
                          .help = "Runs a job.",
                          .flags = {"job", "servers", "set", "json"},
                          .repeated_flags = {"set"}};

class CommandLineTest : public testing::Test {
 protected:
  absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
    return ParseCommandLine(kRun, arguments);
  }
  std::string Error(std::vector<std::string> arguments) {
    const absl::Status status = Parse(arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  // Puts the flags back after each test.
  absl::FlagSaver saver_;
};

TEST_F(CommandLineTest, ValuesComeAfterEqualsOrAsTheNextArgument) {
  ASSERT_TRUE(Parse({"--job=a=b.pbtxt", "--servers", "3", "--json"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_job), "a=b.pbtxt");
  EXPECT_EQ(absl::GetFlag(FLAGS_servers), 3);
  EXPECT_TRUE(absl::GetFlag(FLAGS_json));
}

TEST_F(CommandLineTest, RepeatedFlagsKeepAllValuesInOrder) {
  const absl::StatusOr<CommandLine> line = Parse({"--set=a=1", "--set", "b=2", "--set=a=3"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->repeated.at("set"), (std::vector<std::string>{"a=1", "b=2", "a=3"}));
}

TEST_F(CommandLineTest, FlagOfAnotherCommandIsRefusedWithThoseThereAre) {
  const std::string error = Error({"--not_mine"});
  EXPECT_TRUE(absl::StrContains(error, "--not_mine")) << error;
  EXPECT_TRUE(absl::StrContains(error, "--servers")) << error;
}

TEST_F(CommandLineTest, ImpossibleValueIsNamed) {
  const std::string error = Error({"--servers=many"});
  EXPECT_TRUE(absl::StrContains(error, "--servers=many")) << error;
}

TEST_F(CommandLineTest, MissingValueIsNamed) {
  EXPECT_TRUE(absl::StrContains(Error({"--job"}), "--job needs a value"));
}

TEST_F(CommandLineTest, StrayArgumentIsNamed) {
  EXPECT_TRUE(absl::StrContains(Error({"job.pbtxt"}), "'job.pbtxt'"));
}

const CommandSpec kDrain = {.name = "drain",
                            .summary = "drains",
                            .help = "Drains a job.",
                            .flags = {"job", "servers"},
                            .argument = "job",
                            .bare_flags = {{"servers", "7"}}};

TEST_F(CommandLineTest, OneWordMayStandForAFlagAndAFlagForItsUsualValue) {
  const absl::StatusOr<CommandLine> line =
      ParseCommandLine(kDrain, std::vector<std::string>{"--servers", "flights"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(absl::GetFlag(FLAGS_job), "flights");
  EXPECT_EQ(absl::GetFlag(FLAGS_servers), 7);
  EXPECT_TRUE(line->given.contains("servers"));
  EXPECT_TRUE(line->given.contains("job"));
  EXPECT_FALSE(ParseCommandLine(kDrain, std::vector<std::string>{"flights", "other"}).ok())
      << "one word, not two";
  EXPECT_FALSE(Parse({"--servers=3"})->given.contains("job"));
}

TEST_F(CommandLineTest, HelpWinsOverMistakes) {
  const absl::StatusOr<CommandLine> line = Parse({"--nonsense", "--help"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->help);
}

TEST_F(CommandLineTest, HelpShowsEveryFlagWithItsDefault) {
  const std::string help = CommandHelp("pawlctl", kRun);
  for (const char* part : {"Usage: pawlctl run", "Runs a job.", "--servers=...  (default 1)",
                           "how many servers", "--json\n", "--set=..."}) {
    EXPECT_TRUE(absl::StrContains(help, part)) << part << " is missing in\n" << help;
  }
}

TEST_F(CommandLineTest, WhatAFlagMeansToThisCommandAloneIsShownInPlaceOfItsDefault) {
  CommandSpec scale = kRun;
  scale.flag_help = {{"servers", "left out: as many as now"}};
  const std::string help = CommandHelp("pawlctl", scale);
  EXPECT_TRUE(absl::StrContains(help, "--servers=...\n      left out: as many as now\n")) << help;
}

}  // namespace
}  // namespace pawl

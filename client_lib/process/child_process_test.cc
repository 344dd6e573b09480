#include "client_lib/process/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

// Long enough that only a broken program takes it.
MonotonicTime Deadline() { return Clock::Real().Now() + std::chrono::seconds(60); }

std::string TempFile(const std::string& name) {
  return absl::StrCat(testing::TempDir(), "/", name);
}

ChildOptions Shell(const std::string& script) {
  static int number = 0;
  return {.name = "child",
          .program = "/bin/bash",
          .arguments = {"-c", script},
          .log = TempFile(absl::StrCat("child-", ++number, ".log"))};
}

std::unique_ptr<ChildProcess> Started(const ChildOptions& options) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(options);
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : nullptr;
}

// Waits until the child's log has a first line, which the child writes when it is ready.
std::string FirstLine(const ChildProcess& child) {
  std::vector<std::string> lines;
  return Eventually([&] { return !(lines = child.LogTail(1)).empty(); }) ? lines[0] : "";
}

// Whether the process is gone, or a zombie that init has not collected yet.
bool IsGone(const std::string& pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);
  return text.empty() || absl::StrContains(text, ") Z ");
}

TEST(ChildProcess, OutputAndErrorsGoToTheLog) {
  auto child = Started(Shell("echo one; echo two >&2; echo three"));
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->Succeeded());
  EXPECT_EQ(child->LogTail(2), (std::vector<std::string>{"two", "three"}));
  EXPECT_EQ(child->LogTail(9).size(), 3u);
}

TEST(ChildProcess, LogIsWholeIfTheParentHasNoStandardStreams) {
  const ChildOptions options = Shell("echo one; echo two >&2");
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
    auto child = ChildProcess::Start(options);
    _exit(child.ok() && (*child)->WaitUntil(Deadline()) && (*child)->Succeeded() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(status, 0);
  std::ifstream log(options.log);
  std::string first, second;
  std::getline(log, first);
  std::getline(log, second);
  EXPECT_EQ(first, "one");
  EXPECT_EQ(second, "two");
}

TEST(ChildProcess, LogTailIsBoundedAndHasWholeLines) {
  auto child = Started(Shell("for i in {1..5000}; do echo line $i; done"));
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  const std::vector<std::string> tail = child->LogTail(100000);
  EXPECT_LE(tail.size() * 9, kMaxLogTailBytes);
  EXPECT_EQ(tail.back(), "line 5000");
  for (const std::string& line : tail) EXPECT_TRUE(absl::StartsWith(line, "line ")) << line;
}

TEST(ChildProcess, EnvironmentIsInheritedAndOverridden) {
  ASSERT_EQ(setenv("PAWL_TEST_INHERITED", "old", 1), 0);
  ASSERT_EQ(setenv("PAWL_TEST_REPLACED", "old", 1), 0);
  ChildOptions options = Shell("echo $PAWL_TEST_INHERITED $PAWL_TEST_REPLACED $PAWL_TEST_ADDED");
  options.environment = {"PAWL_TEST_REPLACED=new", "PAWL_TEST_ADDED=more=this"};
  auto child = Started(options);
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_EQ(child->LogTail(1), (std::vector<std::string>{"old new more=this"}));
}

TEST(ChildProcess, ExitIsDescribed) {
  auto code = Started(Shell("exit 3"));
  ASSERT_TRUE(code->WaitUntil(Deadline()));
  EXPECT_FALSE(code->Succeeded());
  EXPECT_EQ(code->HowItEnded(), "exited with code 3");

  auto killed = Started(Shell("kill -9 $$"));
  ASSERT_TRUE(killed->WaitUntil(Deadline()));
  EXPECT_TRUE(killed->KilledBy(SIGKILL));
  EXPECT_FALSE(killed->Succeeded());
  EXPECT_EQ(killed->HowItEnded(), "was killed by signal 9 (Killed)");
}

TEST(ChildProcess, MissingProgramIsNamed) {
  ChildOptions options = Shell("");
  options.program = TempFile("no-such-program");
  const absl::Status status = ChildProcess::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), "no-such-program")) << status;
}

TEST(ChildProcess, UnwritableLogIsNamed) {
  ChildOptions options = Shell("");
  options.log = TempFile("no/such/folder.log");
  const absl::Status status = ChildProcess::Start(options).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "no/such/folder.log")) << status;
}

TEST(ChildProcess, WaitEndsAtItsDeadline) {
  auto child = Started(Shell("sleep 600"));
  EXPECT_FALSE(child->WaitUntil(Clock::Real().Now() + std::chrono::milliseconds(20)));
  EXPECT_FALSE(child->HasEnded());
}

TEST(ChildProcess, SignalsReachChildOfBlockingParent) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  auto child = Started(Shell("sleep 600"));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  child->Signal(SIGTERM);
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->KilledBy(SIGTERM));
}

TEST(ChildProcess, DestructorKillsTheChild) {
  auto child = Started(Shell("trap '' TERM; sleep 600"));
  const pid_t pid = child->pid();
  child.reset();
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildProcess, ChildHasItsOwnProcessGroup) {
  auto child = Started(Shell("sleep 600"));
  EXPECT_EQ(getpgid(child->pid()), child->pid());
}

TEST(ChildProcess, SignalReachesTheProgramsOwnChildren) {
  auto child = Started(Shell("sleep 600 & echo $!; wait"));
  const std::string grandchild = FirstLine(*child);
  ASSERT_FALSE(IsGone(grandchild));
  child->Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return IsGone(grandchild); }));
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->KilledBy(SIGTERM));
}

TEST(ChildProcess, NoProcessOfTheGroupOutlivesTheProgram) {
  auto child = Started(Shell("trap '' TERM; sleep 600 & echo $!; exit 3"));
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->ExitedWith(3));
  EXPECT_TRUE(Eventually([&] { return IsGone(child->LogTail(1)[0]); }));
}

// A shell that has not replaced itself by its program. On SIGTERM the program waits for `gate` and
// then leaves. Its first line is its pid.
ChildOptions WrappedProgram(const std::string& gate) {
  ChildOptions options = Shell(
      "bash -c 'trap \"until [[ -e $GATE ]]; do sleep 0.01; done; echo left; exit\" TERM;"
      " echo $$; while :; do sleep 0.01; done'; true");
  options.environment = {"GATE=" + gate};
  return options;
}

TEST(ChildProcess, ProgramBehindShellMayLeaveOnSigterm) {
  const std::string gate = TempFile("gate");
  // Absent also when the test is repeated.
  std::filesystem::remove(gate);
  auto child = Started(WrappedProgram(gate));
  const std::string program = FirstLine(*child);
  ASSERT_NE(program, absl::StrCat(child->pid()));
  child->Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return IsGone(absl::StrCat(child->pid())); }));
  EXPECT_FALSE(child->WaitUntil(Clock::Real().Now() + std::chrono::milliseconds(50)));
  EXPECT_FALSE(IsGone(program));
  std::ofstream(gate).put('\n');
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->KilledBy(SIGTERM));
  EXPECT_EQ(child->LogTail(1), std::vector<std::string>{"left"});
}

TEST(ChildProcess, ProgramBehindShellIsKilledAfterSigterm) {
  auto child = Started(WrappedProgram(TempFile("closed-gate")));
  const std::string program = FirstLine(*child);
  child->Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return IsGone(absl::StrCat(child->pid())); }));
  ASSERT_FALSE(child->HasEnded());
  child->Signal(SIGKILL);
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(Eventually([&] { return IsGone(program); }));
}

TEST(ChildProcess, DestructorKillsTheGroup) {
  auto child = Started(Shell("trap '' TERM; sleep 600 & echo $!; wait"));
  const std::string grandchild = FirstLine(*child);
  ASSERT_FALSE(IsGone(grandchild));
  child.reset();
  EXPECT_TRUE(Eventually([&] { return IsGone(grandchild); }));
}

TEST(ChildProcess, EndIsSeenByProgramStartedWithSigchldIgnored) {
  signal(SIGCHLD, SIG_IGN);
  auto child = Started(Shell("exit 3"));
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->ExitedWith(3));
}

TEST(ChildProcess, ChildOfParentThatIgnoresSigpipeDiesByIt) {
  signal(SIGPIPE, SIG_IGN);
  auto child = Started(Shell("kill -PIPE $$"));
  signal(SIGPIPE, SIG_DFL);
  ASSERT_TRUE(child->WaitUntil(Deadline()));
  EXPECT_TRUE(child->KilledBy(SIGPIPE));
}

TEST(ChildProcess, RenamedLogKeepsGrowing) {
  auto child = Started(Shell("echo one; read -r < <(sleep 600)"));
  ASSERT_EQ(FirstLine(*child), "one");
  const std::string log = TempFile("renamed.log");
  ASSERT_TRUE(child->Rename("server-1", log).ok());
  EXPECT_EQ(child->name(), "server-1");
  EXPECT_EQ(child->LogTail(1), std::vector<std::string>{"one"});
  EXPECT_FALSE(child->Rename("server-1", TempFile("no/such/folder.log")).ok());
}

TEST(ChildProcess, ChildDiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    // The parent: it reports the child's pid and is then killed like pawlctl by kill -9.
    auto child = ChildProcess::Start(Shell("trap '' TERM INT HUP; sleep 600"));
    const pid_t pid = child.ok() ? (*child)->pid() : -1;
    if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    kill(getpid(), SIGKILL);
  }
  close(ends[1]);
  pid_t child = -1;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  EXPECT_TRUE(Eventually([child] { return IsGone(absl::StrCat(child)); }));
}

}  // namespace
}  // namespace pawl

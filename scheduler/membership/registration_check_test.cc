#include "scheduler/membership/registration_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/version.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

RegisterRequest Of(Role role) {
  RegisterRequest request;
  request.set_role(role);
  request.set_process_nonce(1);
  if (role == SERVER_ROLE) request.set_address("127.0.0.1:4001");
  return request;
}

bool Refused(const RegisterRequest& request) {
  return absl::IsInvalidArgument(CheckRegistration(request));
}

TEST(RegistrationCheckTest, CompleteRegistrationIsAccepted) {
  for (const Role role : {SERVER_ROLE, WORKER_ROLE, CLIENT_ROLE})
    EXPECT_TRUE(CheckRegistration(Of(role)).ok()) << role;
}

TEST(RegistrationCheckTest, RoleAndNonceAreNeeded) {
  EXPECT_TRUE(Refused(Of(ROLE_UNSPECIFIED)));
  RegisterRequest request = Of(SERVER_ROLE);
  request.set_process_nonce(0);
  EXPECT_TRUE(Refused(request));
}

TEST(RegistrationCheckTest, OtherProtocolIsRefusedNamingBothRanges) {
  RegisterRequest request = Of(WORKER_ROLE);
  request.set_version("7.0.0");
  request.set_oldest_protocol(kNewestProtocol + 1);
  request.set_newest_protocol(kNewestProtocol + 3);
  const absl::Status status = CheckRegistration(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  const std::string message(status.message());
  EXPECT_NE(message.find("7.0.0"), std::string::npos) << message;
  EXPECT_NE(message.find(absl::StrCat(kNewestProtocol + 1, " to ", kNewestProtocol + 3)),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(absl::StrCat(kOldestProtocol, " to ", kNewestProtocol)), std::string::npos)
      << message;
  request.set_oldest_protocol(kNewestProtocol);
  EXPECT_TRUE(CheckRegistration(request).ok());
  request.set_version(std::string(kMaxVersionBytes + 1, '1'));
  EXPECT_TRUE(Refused(request));
}

TEST(RegistrationCheckTest, ServerWithOtherReplicationProtocolIsRefused) {
  for (const Role role : {SERVER_ROLE, WORKER_ROLE, CLIENT_ROLE}) {
    RegisterRequest request = Of(role);
    const bool is_server = role == SERVER_ROLE;
    EXPECT_EQ(absl::IsUnimplemented(CheckServerProtocol(request)), is_server) << "it names none";
    request.set_oldest_protocol(1);
    request.set_newest_protocol(kOldestServerProtocol - 1);
    EXPECT_EQ(absl::IsUnimplemented(CheckServerProtocol(request)), is_server);
    EXPECT_TRUE(CheckRegistration(request).ok());
    request.set_newest_protocol(kOldestServerProtocol);
    EXPECT_TRUE(CheckServerProtocol(request).ok());
  }
}

// It would never close a step, and the others would wait for it.
TEST(RegistrationCheckTest, OldWorkerIsRefusedInAJobThatClipsTheNorm) {
  Job clips;
  clips.set_clip_global_norm(0.5f);
  for (const Role role : {SERVER_ROLE, WORKER_ROLE, CLIENT_ROLE}) {
    RegisterRequest request = Of(role);
    for (const uint32_t newest : {0u, kStepPhasesProtocol - 1}) {
      request.set_newest_protocol(newest);
      const absl::Status status = CheckWorkerProtocol(request, clips);
      EXPECT_EQ(absl::IsUnimplemented(status), role == WORKER_ROLE) << status;
      if (role == WORKER_ROLE) {
        EXPECT_NE(status.message().find("clip_global_norm is 0.5, which needs workers with"),
                  std::string::npos)
            << status;
      }
      EXPECT_TRUE(CheckWorkerProtocol(request, Job()).ok());
    }
    request.set_newest_protocol(kStepPhasesProtocol);
    EXPECT_TRUE(CheckWorkerProtocol(request, clips).ok());
  }
}

// It would wait for the others at another place.
TEST(RegistrationCheckTest, OldWorkerIsRefusedInAJobThatEvaluatesOutsideSync) {
  RegisterRequest request = Of(WORKER_ROLE);
  request.set_newest_protocol(kStepPhasesProtocol - 1);
  Job job;
  job.mutable_model();
  job.mutable_data()->add_eval("eval.csv");
  EXPECT_TRUE(CheckWorkerProtocol(request, job).ok());
  job.mutable_consistency()->set_mode(ASYNC);
  const absl::Status status = CheckWorkerProtocol(request, job);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("data.eval is set and its consistency.mode is ASYNC, which"),
            std::string::npos)
      << status;
  job.mutable_data()->clear_eval();
  EXPECT_TRUE(CheckWorkerProtocol(request, job).ok());
}

TEST(RegistrationCheckTest, ServerAddressMustBeReachable) {
  for (const char* address : {"", "host", ":80", "host:0", "host:65536", "host:x", "0.0.0.0:80",
                              "[::]:80", "ho\nst:80", "\x1b[2J:80"}) {
    RegisterRequest request = Of(SERVER_ROLE);
    request.set_address(address);
    EXPECT_TRUE(Refused(request)) << address;
  }
}

TEST(RegistrationCheckTest, TextsAreBoundedAndPrintable) {
  for (const std::string& text :
       {std::string(257, 'x'), std::string("host\nnode died: worker-0"), std::string("\x1b[2J")}) {
    RegisterRequest request = Of(SERVER_ROLE);
    request.set_description(text);
    EXPECT_TRUE(Refused(request)) << text;
    request = Of(SERVER_ROLE);
    request.set_zone(text);
    EXPECT_TRUE(Refused(request)) << text;
  }
  RegisterRequest request = Of(SERVER_ROLE);
  request.set_node(std::string(kMaxNodeNameBytes + 1, 'x'));
  EXPECT_TRUE(Refused(request));
}

TEST(RegistrationCheckTest, FieldOfAnotherRoleIsRefused) {
  RegisterRequest request = Of(SERVER_ROLE);
  request.add_logical_workers(0);
  EXPECT_TRUE(Refused(request));
  request = Of(WORKER_ROLE);
  request.set_address("127.0.0.1:4001");
  EXPECT_TRUE(Refused(request));
  request = Of(WORKER_ROLE);
  request.add_recovered()->set_partition(0);
  EXPECT_TRUE(Refused(request));
  request = Of(WORKER_ROLE);
  request.set_data_damaged(true);
  EXPECT_TRUE(Refused(request));
  request = Of(SERVER_ROLE);
  request.set_data_damaged(true);
  EXPECT_FALSE(Refused(request));
  request.add_recovered()->set_partition(0);
  EXPECT_TRUE(Refused(request));
  request = Of(CLIENT_ROLE);
  request.set_zone("rack-1");
  EXPECT_TRUE(Refused(request));
}

}  // namespace
}  // namespace pawl

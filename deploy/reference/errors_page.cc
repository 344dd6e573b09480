#include "deploy/reference/errors_page.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/transport.h"
#include "deploy/reference/comment.h"
#include "google/protobuf/descriptor.pb.h"

namespace pawl {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// All status codes except OK.
std::vector<absl::StatusCode> Codes() {
  std::vector<absl::StatusCode> codes;
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    codes.push_back(static_cast<absl::StatusCode>(code));
  }
  return codes;
}

std::string ClientDoes(const absl::Status& error) {
  RetryBudget budget;
  switch (DecideRetry(error, 0, 0, budget).action) {
    case RetryAction::kAgain:
      return "repeats the call after a pause";
    case RetryAction::kReroute:
      return "sends the same push ids with the new routing";
    case RetryAction::kGiveUp:
      break;
  }
  return "returns the error to the caller";
}

std::string Row(absl::string_view status, absl::string_view action) {
  return absl::StrCat("| ", status, " | ", action, " |\n");
}

std::string StatusTable() {
  std::string text = "| status | the C++ client, until the call's deadline |\n|---|---|\n";
  for (const absl::StatusCode code : Codes()) {
    const std::string name = absl::StatusCodeToString(code);
    const std::string plain = ClientDoes(absl::Status(code, ""));
    absl::StrAppend(&text, Row(name, plain));
    absl::Status rerouted(code, "");
    rerouted.SetPayload(kRoutingPayloadUrl, absl::Cord());
    if (const std::string action = ClientDoes(rerouted); action != plain) {
      absl::StrAppend(&text,
                      Row(absl::StrCat(name, " with a RoutingTable in its details"), action));
    }
    absl::Status pushed_back(code, "");
    pushed_back.SetPayload(kPushbackPayloadUrl, absl::Cord("1"));
    if (const std::string action = ClientDoes(pushed_back); action != plain) {
      absl::StrAppend(
          &text,
          Row(absl::StrCat(name, " with grpc-retry-pushback-ms"),
              absl::StrCat(action, " of at least that time (10 s at most), longer each time")));
    }
  }
  return text;
}

// The status codes that a comment names.
std::vector<std::string> CodesIn(absl::string_view comment) {
  std::vector<std::string> named;
  const std::vector<absl::string_view> words =
      absl::StrSplit(comment, absl::ByAnyChar(" ,.;:()\n"), absl::SkipEmpty());
  for (const absl::StatusCode code : Codes()) {
    const std::string name = absl::StatusCodeToString(code);
    if (std::find(words.begin(), words.end(), name) != words.end()) named.push_back(name);
  }
  return named;
}

// The comment above `syntax`, which is about the whole file.
std::string FileComment(const FileDescriptor& file) {
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  file.CopySourceCodeInfoTo(&proto);
  for (const auto& location : proto.source_code_info().location()) {
    if (location.path_size() == 1 &&
        location.path(0) == google::protobuf::FileDescriptorProto::kSyntaxFieldNumber) {
      return location.leading_comments();
    }
  }
  return "";
}

// The lines of a comment from the one that starts with "Errors ", unchanged.
std::string ErrorsOfAllRpcs(const FileDescriptor& file) {
  std::string text;
  bool started = false;
  for (const absl::string_view line : absl::StrSplit(FileComment(file), '\n')) {
    started = started || absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "Errors ");
    if (started && !line.empty()) absl::StrAppend(&text, "   ", line, "\n");
  }
  return text;
}

std::string ServiceText(const ServiceDescriptor& service) {
  std::string text = absl::StrCat("\n## ", service.name(), "\n\n`", service.file()->name(), "`\n");
  if (const std::string errors = ErrorsOfAllRpcs(*service.file()); !errors.empty())
    absl::StrAppend(&text, "\n", errors);
  const std::string comment = CommentOf(service);
  if (!comment.empty()) absl::StrAppend(&text, "\n", Wrapped("", "", comment));
  absl::StrAppend(&text, "\n");
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    const std::string effect = CommentOf(method);
    const std::vector<std::string> codes = CodesIn(effect);
    const std::string own =
        codes.empty() ? "" : absl::StrCat(" (", absl::StrJoin(codes, ", "), ")");
    absl::StrAppend(&text,
                    Wrapped("- ", "  ", absl::StrCat("`", method.name(), "`", own, ": ", effect)));
  }
  return text;
}

}  // namespace

std::string ErrorsPage(const google::protobuf::DescriptorPool& pool,
                       const std::vector<std::string>& files) {
  std::string text = absl::StrCat(
      "# Errors of the calls\n\n",
      Wrapped("", "",
              "Every call ends with a gRPC status. The statuses after an rpc's name are those that "
              "its comment names, in addition to those of all rpcs of its service. The comment "
              "says when they occur and how to react."),
      "\n", StatusTable());
  for (const std::string& name : files) {
    const FileDescriptor& file = *pool.FindFileByName(name);
    for (int i = 0; i < file.service_count(); ++i)
      absl::StrAppend(&text, ServiceText(*file.service(i)));
  }
  return text;
}

}  // namespace pawl

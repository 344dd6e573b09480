#include "scheduler/store/etcd_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pawl {
namespace {

using nlohmann::json;

// A host that does not answer a SYN must not take the time of the endpoints after it.
constexpr std::chrono::milliseconds kConnectTimeout{1000};

// As much of an answer that is not JSON as a message quotes.
constexpr size_t kMaxQuotedBytes = 200;

// `answer` is a std::string.
size_t AppendAnswer(char* data, size_t size, size_t count, void* answer) {
  auto& text = *static_cast<std::string*>(answer);
  const size_t bytes = size * count;
  if (bytes > kMaxEtcdAnswerBytes - text.size()) return 0;
  text.append(data, bytes);
  return bytes;
}

// UNAVAILABLE if another endpoint may do better.
absl::Status ErrorOf(long http_code, const json& answer, absl::string_view text) {
  if (answer.is_object() && answer.contains("code") && answer["code"].is_number_integer()) {
    const auto& message = answer.contains("message") ? answer["message"] : answer["code"];
    const std::string words = message.is_string() ? message.get<std::string>() : std::string(text);
    // gRPC's codes and Abseil's are the same numbers.
    switch (const auto code = static_cast<absl::StatusCode>(answer["code"].get<int>()); code) {
      case absl::StatusCode::kDeadlineExceeded:
      case absl::StatusCode::kUnavailable:
        return absl::UnavailableError(words);
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kNotFound:
      case absl::StatusCode::kOutOfRange:
      case absl::StatusCode::kPermissionDenied:
      case absl::StatusCode::kResourceExhausted:
      case absl::StatusCode::kUnauthenticated:
        return absl::Status(code, words);
      default:
        // ABORTED and FAILED_PRECONDITION have a meaning of their own in StateStore, which etcd
        // does not know.
        return absl::InternalError(words);
    }
  }
  const std::string words = absl::StrCat("HTTP code ", http_code, ", \"",
                                         absl::CHexEscape(text.substr(0, kMaxQuotedBytes)), "\"");
  if (http_code >= 500) return absl::UnavailableError(words);
  return absl::UnimplementedError(absl::StrCat("this does not speak etcd's v3 gateway: ", words));
}

}  // namespace

class EtcdClient::Handle {
 public:
  Handle() {
    // Initialises the library once for the process, thread-safe since curl 7.84.
    curl_global_init(CURL_GLOBAL_DEFAULT);
    curl_ = curl_easy_init();
    headers_ = curl_slist_append(headers_, "Content-Type: application/json");
    // Without this curl waits a second for leave to send a large body.
    headers_ = curl_slist_append(headers_, "Expect:");
    if (curl_ == nullptr || headers_ == nullptr) return;
    Set(CURLOPT_HTTPHEADER, headers_);
    Set(CURLOPT_PROTOCOLS_STR, "http");
    // A signal would hit any thread.
    Set(CURLOPT_NOSIGNAL, 1L);
    // A proxy of the environment is for the world outside, not for the cluster.
    Set(CURLOPT_PROXY, "");
    Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(kConnectTimeout.count()));
    Set(CURLOPT_WRITEFUNCTION, &AppendAnswer);
    Set(CURLOPT_ERRORBUFFER, error_);
  }
  ~Handle() {
    curl_easy_cleanup(curl_);
    curl_slist_free_all(headers_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // UNAVAILABLE if another endpoint may do better.
  absl::StatusOr<json> Post(const std::string& url, const std::string& body,
                            std::chrono::milliseconds timeout) {
    if (curl_ == nullptr || headers_ == nullptr)
      return absl::ResourceExhaustedError("no memory for curl");
    std::string text;
    error_[0] = '\0';
    Set(CURLOPT_URL, url.c_str());
    Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    Set(CURLOPT_POSTFIELDS, body.data());
    Set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
    Set(CURLOPT_WRITEDATA, &text);
    const CURLcode code = curl_easy_perform(curl_);
    if (code != CURLE_OK) {
      return absl::UnavailableError(error_[0] != '\0' ? error_ : curl_easy_strerror(code));
    }
    long http_code = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &http_code);
    json answer = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (http_code == 200 && answer.is_object()) return answer;
    return ErrorOf(http_code, answer, text);
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    curl_easy_setopt(curl_, option, value);
  }

  CURL* curl_ = nullptr;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = "";
};

EtcdClient::EtcdClient(std::vector<std::string> endpoints,
                       std::chrono::milliseconds attempt_timeout)
    : endpoints_(std::move(endpoints)),
      attempt_timeout_(attempt_timeout),
      handle_(std::make_unique<Handle>()) {}

EtcdClient::~EtcdClient() = default;

absl::StatusOr<json> EtcdClient::Call(absl::string_view path, const json& request,
                                      MonotonicTime deadline) {
  const std::string body = request.dump();
  std::vector<std::string> failures;
  for (size_t tried = 0; tried < endpoints_.size(); ++tried) {
    const std::string& endpoint = endpoints_[current_];
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::Real().Now());
    // To curl a timeout of 0 is none.
    if (left.count() <= 0) {
      failures.push_back(absl::StrCat(endpoint, ": no time left"));
      break;
    }
    absl::StatusOr<json> answer = handle_->Post(absl::StrCat("http://", endpoint, path), body,
                                                std::min(left, attempt_timeout_));
    if (answer.ok()) return answer;
    if (!absl::IsUnavailable(answer.status())) {
      return absl::Status(answer.status().code(), absl::StrCat("etcd at ", endpoint, ", ", path,
                                                               ": ", answer.status().message()));
    }
    failures.push_back(absl::StrCat(endpoint, ": ", answer.status().message()));
    current_ = (current_ + 1) % endpoints_.size();
  }
  return absl::UnavailableError(
      absl::StrCat("no etcd endpoint answers ", path, ": ", absl::StrJoin(failures, "; ")));
}

std::string EtcdBytes(absl::string_view bytes) { return absl::Base64Escape(bytes); }

absl::StatusOr<int64_t> EtcdIntegerAt(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  int64_t value = 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (found->is_string() && absl::SimpleAtoi(found->get_ref<const std::string&>(), &value))
    return value;
  return absl::DataLossError(absl::StrCat("etcd's answer has '", name, "' that is not an integer"));
}

absl::StatusOr<std::string> EtcdBytesAt(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::string();
  std::string value;
  if (found->is_string() && absl::Base64Unescape(found->get_ref<const std::string&>(), &value))
    return value;
  return absl::DataLossError(absl::StrCat("etcd's answer has '", name, "' that is not base64"));
}

}  // namespace pawl

#include "deploy/pawlctl/commands/token_command.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client_lib/base/env.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/tls_files.h"
#include "client_lib/security/token/token.h"
#include "client_lib/security/token/token_keys.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/console.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

constexpr uint64_t kMaxKeyBytes = uint64_t{64} << 10;
constexpr uint32_t kMaxHours = kMaxTokenSeconds / 3600;

struct TokenOptions {
  std::string role;
  std::string name;
  uint32_t hours = 8;
  std::string tls_dir;
  std::string key;
  std::string job;
  std::string trust_domain = "pawl.local";
  bool json = false;
};

// The name of a key file, if it is one.
absl::StatusOr<std::string> KeyNameOf(const std::string& path) {
  absl::string_view name = path;
  name.remove_prefix(name.rfind('/') + 1);
  if (absl::ConsumeSuffix(&name, kPrivateKeySuffix) && !name.empty()) return std::string(name);
  return absl::InvalidArgumentError(
      absl::StrCat("--key=", path, ": the file's name must be NAME", kPrivateKeySuffix,
                   ", and schedulers and servers have NAME", kPublicKeySuffix));
}

// The only private key of the folder.
absl::StatusOr<std::string> KeyIn(const std::string& tls_dir) {
  const std::string folder = JoinPath(tls_dir, kTokensFolder);
  std::vector<std::string> found;
  for (const std::string& name : Env::Real().List(folder).value_or(std::vector<std::string>())) {
    if (absl::EndsWith(name, kPrivateKeySuffix)) found.push_back(JoinPath(folder, name));
  }
  if (found.size() == 1) return found.front();
  return absl::InvalidArgumentError(absl::StrCat(
      folder, " has ", found.empty() ? "no" : "several", " files *", kPrivateKeySuffix,
      found.empty() ? "; deploy/tls/make_certificates --token_key=NAME makes one, or name it with "
                      "--key=FILE"
                    : "; name one of them with --key=FILE"));
}

absl::StatusOr<Token> NewToken(const TokenOptions& options) {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  std::string trust_domain = options.trust_domain;
  std::string job = options.job;
  if (!options.tls_dir.empty()) {
    PAWL_ASSIGN_OR_RETURN(const TlsFiles files, ReadTlsFiles(Env::Real(), options.tls_dir, now));
    trust_domain = files.identity.trust_domain;
    job = files.identity.job;
  }
  Token token;
  PAWL_ASSIGN_OR_RETURN(token.identity,
                        ParseIdentity(absl::StrCat("spiffe://", trust_domain, "/pawl/", job, "/",
                                                   options.role, "/", options.name)));
  token.id = NewTokenId();
  token.not_before = now;
  token.expires = now + int64_t{3600} * options.hours;
  return token;
}

absl::StatusOr<std::pair<Token, std::string>> MakeToken(const TokenOptions& options) {
  std::string path = options.key;
  if (path.empty()) {
    PAWL_ASSIGN_OR_RETURN(path, KeyIn(options.tls_dir));
  }
  PAWL_ASSIGN_OR_RETURN(const std::string key_name, KeyNameOf(path));
  PAWL_ASSIGN_OR_RETURN(const std::string pem, ReadWholeFile(Env::Real(), path, kMaxKeyBytes));
  PAWL_RETURN_IF_ERROR(CheckIsPrivate(path));
  PAWL_ASSIGN_OR_RETURN(const Token token, NewToken(options));
  const absl::StatusOr<std::string> text = SignToken(token, key_name, pem);
  PAWL_RETURN_IF_ERROR(Annotate(text.status(), path));
  return std::pair(token, *text);
}

int PrintToken(const TokenOptions& options) {
  const auto made = MakeToken(options);
  Console console;
  if (!made.ok()) {
    console.Error(absl::StrCat("token: ", made.status().message()));
    return kExitUsage;
  }
  const auto& [token, text] = *made;
  if (options.json) {
    console.Line(nlohmann::ordered_json({{"token", text},
                                         {"id", token.id},
                                         {"subject", token.identity.Uri()},
                                         {"expires", token.expires}})
                     .dump(2));
    return kExitDone;
  }
  console.Line(text);
  console.Error(absl::StrCat("token ", token.id, " for ", token.identity.name, ", role ",
                             RoleName(token.identity.role), ", until ",
                             TokenTimeText(token.expires)));
  return kExitDone;
}

// Checks what does not need files, and applies the environment.
absl::Status Check(TokenOptions& options) {
  if (options.hours < 1 || options.hours > kMaxHours) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hours=", options.hours, " must be 1 to ", kMaxHours));
  }
  if (options.tls_dir.empty() && options.key.empty()) {
    const char* const dir = std::getenv("PAWL_TLS_DIR");
    if (dir != nullptr) options.tls_dir = dir;
  }
  if (options.tls_dir.empty() && (options.key.empty() || options.job.empty())) {
    return absl::InvalidArgumentError(
        "--tls_dir=FOLDER is needed (or PAWL_TLS_DIR), or both --key=FILE and --job=JOB");
  }
  if (!options.tls_dir.empty() && !options.job.empty())
    return absl::InvalidArgumentError("--job is that of the certificate in --tls_dir; omit it");
  const absl::StatusOr<Identity> role =
      ParseIdentity(absl::StrCat("spiffe://d/pawl/j/", options.role));
  if (!role.ok() || !kTokenRoles.Contains(role->role)) {
    return absl::InvalidArgumentError(absl::StrCat("--role=", options.role, " must be ",
                                                   kTokenRoles.Describe(),
                                                   "; daemons have certificates"));
  }
  if (!ParseIdentity(absl::StrCat("spiffe://d/pawl/j/reader/", options.name)).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--for=", options.name, ": only letters, digits and . - _ are possible, 128 at most"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddTokenCommand(CommandLine& line) {
  const auto options = std::make_shared<TokenOptions>();
  CLI::App& command = line.AddCommand(
      "token", "make a token for a person or program without a certificate",
      "Prints a token, which stands for a certificate until it expires. It is signed with the\n"
      "private key in tokens/ of an operator's --tls_dir; scheduler and servers have the public\n"
      "one (deploy/security.md, \"Tokens\"). Its id, which revokes it, goes to stderr. The holder\n"
      "needs the token and the file ca.pem. Keep it secret: what it allows, everybody who has it\n"
      "can do.\n"
      "\n"
      "  umask 077\n"
      "  pawlctl token --role=reader --for=alice --hours=8 --tls_dir=tls/operator > alice.token\n"
      "  pawlctl status --token_file=alice.token --ca=ca.pem",
      [options] { return PrintToken(*options); },
      "Exit codes: 0: done; 2: wrong command line or files.");
  AddFlag(
      command, "--role", "ROLE", options->role,
      "What the holder may do: reader (also of all parameters), client (also push) or operator.",
      {.required = true});
  AddFlag(command, "--for", "NAME", options->name,
          "The holder, for logs: letters, digits and . - _", {.required = true});
  AddFlag(command, "--hours", "N", options->hours,
          absl::StrCat("When it expires: after 1 to ", kMaxHours, " hours; default: 8."));
  AddFlag(command, "--tls_dir", "FOLDER", options->tls_dir,
          "An operator's folder: its certificate names the job, and its tokens/ has the key.\n"
          "Default: the environment's PAWL_TLS_DIR.");
  AddFlag(command, "--key", "FILE", options->key,
          "The private key, NAME.key.pem; default: the only one in tokens/ of --tls_dir.");
  AddFlag(command, "--job", "JOB", options->job,
          "With --key and without --tls_dir: the job, as in its certificates.");
  AddFlag(command, "--trust_domain", "DOMAIN", options->trust_domain,
          "With --job: as in the job's certificates; default: pawl.local.");
  AddJsonFlag(command, options->json);
  SetCheck(command, [options] { return Check(*options); });
}

}  // namespace pawl

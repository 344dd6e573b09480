#include "deploy/reference/job_page.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/job/job_file.h"
#include "deploy/reference/comment.h"
#include "google/protobuf/text_format.h"
#include "proto/job.pb.h"

namespace pawl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// The values of omitted fields, by the full name of the field.
using Defaults = std::map<std::string, std::string>;

// Creates all submessages of `message` that are not in a oneof.
void CreateMessages(Message& message) {
  const Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* const field = descriptor.field(i);
    if (field->is_repeated() || field->real_containing_oneof() != nullptr ||
        field->message_type() == nullptr)
      continue;
    CreateMessages(*message.GetReflection()->MutableMessage(&message, field));
  }
}

void CollectDefaults(const Message& message, Defaults& defaults) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* const field : set) {
    if (field->message_type() != nullptr) {
      if (!field->is_repeated())
        CollectDefaults(message.GetReflection()->GetMessage(message, field), defaults);
      continue;
    }
    TextFormat::PrintFieldValueToString(message, field, -1, &defaults[field->full_name()]);
  }
}

Defaults DefaultsWith(uint32_t workers, const Model& model, uint32_t batch_size = 0) {
  Job job;
  job.set_batch_size(batch_size);
  *job.mutable_model() = model;
  CreateMessages(job);
  FillDefaults(job, workers);
  Defaults defaults;
  CollectDefaults(job, defaults);
  return defaults;
}

// The defaults that all jobs share. The comment of a field says if its default depends on the
// number of workers, the batch size or the model.
Defaults DefaultsOfAllJobs() {
  Model classes, factors;
  classes.mutable_mlp()->set_classes(2);
  factors.mutable_matrix_factorization();
  Defaults common = DefaultsWith(1, Model());
  for (const Defaults& others : {DefaultsWith(2, Model()), DefaultsWith(1, Model(), 1),
                                 DefaultsWith(1, classes), DefaultsWith(1, factors)}) {
    for (auto it = common.begin(); it != common.end();) {
      const auto other = others.find(it->first);
      it = other != others.end() && other->second == it->second ? std::next(it) : common.erase(it);
    }
  }
  return common;
}

// The name without the package.
template <typename T>
std::string NameOf(const T& type) {
  return type.full_name().substr(type.file()->package().size() + 1);
}

std::string Link(const std::string& name) {
  std::string anchor = absl::AsciiStrToLower(name);
  anchor.erase(std::remove(anchor.begin(), anchor.end(), '.'), anchor.end());
  return absl::StrCat("[", name, "](#", anchor, ")");
}

std::string TypeOf(const FieldDescriptor& field) {
  const std::string type = field.message_type() != nullptr ? Link(NameOf(*field.message_type()))
                           : field.enum_type() != nullptr  ? Link(NameOf(*field.enum_type()))
                                                           : field.type_name();
  return field.is_repeated() ? absl::StrCat("any number of ", type) : type;
}

std::string FieldText(const FieldDescriptor& field, const Defaults& defaults,
                      absl::string_view indent) {
  std::string head = absl::StrCat(indent, "- `", field.name(), "` ", TypeOf(field));
  const auto it = defaults.find(field.full_name());
  if (it != defaults.end()) absl::StrAppend(&head, ", default ", it->second);
  const std::string comment = CommentOf(field);
  return Wrapped(comment.empty() ? head : absl::StrCat(head, ": "), absl::StrCat(indent, "  "),
                 comment);
}

std::string MessageText(const Descriptor& message, const Defaults& defaults) {
  std::string text = absl::StrCat("\n## ", NameOf(message), "\n");
  const std::string about = CommentOf(message);
  if (!about.empty()) absl::StrAppend(&text, "\n", Wrapped("", "", about));
  if (message.field_count() == 0) return absl::StrCat(text, "\nNo fields.\n");
  absl::StrAppend(&text, "\n");
  std::set<const google::protobuf::OneofDescriptor*> written;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::OneofDescriptor* const oneof =
        message.field(i)->real_containing_oneof();
    if (oneof == nullptr) {
      absl::StrAppend(&text, FieldText(*message.field(i), defaults, ""));
    } else if (written.insert(oneof).second) {
      const std::string comment = CommentOf(*oneof);
      absl::StrAppend(&text, Wrapped(comment.empty() ? "- one of" : "- one of: ", "  ", comment));
      for (int j = 0; j < oneof->field_count(); ++j)
        absl::StrAppend(&text, FieldText(*oneof->field(j), defaults, "  "));
    }
  }
  return text;
}

std::string EnumText(const EnumDescriptor& type) {
  std::string text = absl::StrCat("\n## ", NameOf(type), "\n");
  const std::string about = CommentOf(type);
  if (!about.empty()) absl::StrAppend(&text, "\n", Wrapped("", "", about));
  absl::StrAppend(&text, "\n");
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    const std::string comment = CommentOf(value);
    // The value of an omitted field.
    if (value.number() == 0 && comment.empty()) continue;
    if (value.number() == 0) {
      absl::StrAppend(&text, Wrapped("- omitted: ", "  ", comment));
    } else {
      absl::StrAppend(
          &text,
          Wrapped(absl::StrCat("- `", value.name(), comment.empty() ? "`" : "`: "), "  ", comment));
    }
  }
  return text;
}

}  // namespace

std::string JobPage(const google::protobuf::DescriptorPool& pool) {
  const Defaults defaults = DefaultsOfAllJobs();
  std::string text =
      "# The job file\n\n"
      "One protobuf text file, a [Job](#job). An omitted field is 0, false or empty, unless a "
      "default is given.\n";
  std::string enums;
  std::deque<const Descriptor*> messages = {
      pool.FindMessageTypeByName(Job::descriptor()->full_name())};
  std::set<std::string> seen = {messages.front()->full_name()};
  while (!messages.empty()) {
    const Descriptor& message = *messages.front();
    messages.pop_front();
    absl::StrAppend(&text, MessageText(message, defaults));
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      if (field.message_type() != nullptr &&
          seen.insert(field.message_type()->full_name()).second) {
        messages.push_back(field.message_type());
      }
      if (field.enum_type() != nullptr && seen.insert(field.enum_type()->full_name()).second) {
        absl::StrAppend(&enums, EnumText(*field.enum_type()));
      }
    }
  }
  return absl::StrCat(text, enums);
}

}  // namespace pawl

#include "deploy/reference/metrics_page.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/status/metrics.h"

namespace pawl {
namespace {

// The labels of a metric with their values: "state: STARTING, RUNNING, ...".
std::string LabelsOf(const prometheus::MetricFamily& family) {
  std::map<std::string, std::vector<std::string>> values;
  for (const prometheus::ClientMetric& metric : family.metric) {
    for (const auto& label : metric.label) values[label.name].push_back(label.value);
  }
  std::vector<std::string> labels;
  for (const auto& [name, all] : values) {
    const bool is_its_name = name == "server" || name == "worker" || name == "name";
    labels.push_back(is_its_name ? absl::StrCat(name, ": its name")
                                 : absl::StrCat(name, ": ", absl::StrJoin(all, ", ")));
  }
  return absl::StrJoin(labels, "; ");
}

}  // namespace

std::string MetricsPage() {
  GetStatusResponse status;
  status.add_nodes()->set_role(SERVER_ROLE);
  status.mutable_nodes(0)->set_node("server-0");
  status.add_nodes()->set_role(WORKER_ROLE);
  status.mutable_nodes(1)->set_node("worker-0");
  status.set_loss(1);
  status.set_learning_rate(1);
  status.set_sparse_learning_rate(1);
  status.add_metrics()->set_name("ctr");
  EvaluationResult& evaluation = *status.add_evaluations();
  evaluation.set_auc(1);
  evaluation.set_gauc(1);
  evaluation.set_logloss(1);
  evaluation.set_normalized_entropy(1);
  evaluation.set_calibration(1);
  evaluation.set_accuracy(1);
  evaluation.set_rmse(1);
  evaluation.set_mae(1);
  evaluation.set_ndcg(1);
  std::string text =
      "# Metrics\n\n"
      "`pawl-scheduler --metrics_listen=HOST:PORT` serves them at `http://HOST:PORT/metrics`,\n"
      "with `--tls_dir` at `https://HOST:PORT/metrics` to clients with a certificate of the\n"
      "job. A counter may start again at 0 when the scheduler or the node is restarted.\n\n"
      "| name | type | labels | meaning |\n"
      "|---|---|---|---|\n";
  for (const prometheus::MetricFamily& family : Metrics(status, {}, {}, 0)) {
    const char* const type = family.type == prometheus::MetricType::Counter     ? "counter"
                             : family.type == prometheus::MetricType::Histogram ? "histogram"
                                                                                : "gauge";
    absl::StrAppend(&text, "| `", family.name, "` | ", type, " | ", LabelsOf(family), " | ",
                    family.help, " |\n");
  }
  return text;
}

}  // namespace pawl

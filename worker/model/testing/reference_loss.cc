#include "worker/model/testing/reference_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

using Vector = std::vector<double>;
using Widths = google::protobuf::RepeatedField<uint32_t>;

class ReferenceSample {
 public:
  ReferenceSample(const Batch& batch, const ReferenceParameters& parameters, uint32_t s)
      : batch_(batch), parameters_(parameters), s_(s) {
    for (uint32_t i = 0; i < batch.numeric_count; ++i)
      numerics_.push_back(batch.numerics[s * batch.numeric_count + i]);
  }

  const Vector& numerics() const { return numerics_; }

  // Sum of value * row of the table over the entries of field f.
  Vector FieldVector(const std::string& table, uint32_t f) const {
    const Vector& rows = parameters_.at(table);
    const size_t width = batch_.keys.empty() ? 0 : rows.size() / batch_.keys.size();
    Vector sum(width, 0.0);
    const uint32_t field = s_ * batch_.field_count + f;
    for (uint32_t e = batch_.field_begin[field]; e < batch_.field_begin[field + 1]; ++e) {
      for (size_t d = 0; d < width; ++d)
        sum[d] += batch_.entry_value[e] * rows[batch_.entry_key[e] * width + d];
    }
    return sum;
  }

  std::vector<Vector> Embeddings(uint32_t dim) const {
    std::vector<Vector> vectors;
    for (uint32_t f = 0; f < batch_.field_count; ++f) {
      vectors.push_back(FieldVector("embedding", f));
      vectors.back().resize(dim);
    }
    return vectors;
  }

  double Linear() const {
    double sum = 0;
    // The weights have a table of their own, or are the last column of "embedding".
    const std::string table = parameters_.contains("linear") ? "linear" : "embedding";
    for (uint32_t f = 0; f < batch_.field_count; ++f) {
      const Vector row = FieldVector(table, f);
      if (!row.empty()) sum += row.back();
    }
    for (size_t i = 0; i < numerics_.size(); ++i)
      sum += numerics_[i] * parameters_.at("linear/numeric")[i];
    return sum;
  }

  double Bias() const { return parameters_.at("bias")[0]; }

  Vector Mlp(const std::string& name, Vector x, int layers, bool relu_at_end) const {
    for (int l = 0; l < layers; ++l) {
      const Vector& weight = parameters_.at(absl::StrCat(name, "/", l, "/weight"));
      Vector y = parameters_.at(absl::StrCat(name, "/", l, "/bias"));
      for (size_t i = 0; i < x.size(); ++i) {
        for (size_t o = 0; o < y.size(); ++o) y[o] += x[i] * weight[i * y.size() + o];
      }
      if (l + 1 < layers || relu_at_end) {
        for (double& value : y) value = std::max(value, 0.0);
      }
      x = y;
    }
    return x;
  }

  // The vectors of all fields and the numeric inputs, concatenated.
  Vector DeepInputs(uint32_t dim) const {
    Vector inputs;
    for (const Vector& v : Embeddings(dim)) inputs.insert(inputs.end(), v.begin(), v.end());
    inputs.insert(inputs.end(), numerics_.begin(), numerics_.end());
    return inputs;
  }

  static Vector PairDots(const std::vector<Vector>& vectors) {
    Vector dots;
    for (size_t i = 0; i < vectors.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        dots.push_back(0);
        for (size_t d = 0; d < vectors[i].size(); ++d) dots.back() += vectors[i][d] * vectors[j][d];
      }
    }
    return dots;
  }

 private:
  const Batch& batch_;
  const ReferenceParameters& parameters_;
  const uint32_t s_;
  Vector numerics_;
};

double Sum(const Vector& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

std::vector<double> ReferenceOutputs(const Model& model, const Batch& batch,
                                     const ReferenceParameters& parameters, uint32_t s) {
  const ReferenceSample sample(batch, parameters, s);
  switch (model.kind_case()) {
    case Model::kLogisticRegression:
      return {sample.Linear() + sample.Bias()};
    case Model::kFm:
      return {sample.Linear() + sample.Bias() +
              Sum(ReferenceSample::PairDots(sample.Embeddings(model.fm().dim())))};
    case Model::kWideDeep: {
      const Model::WideDeep& spec = model.wide_deep();
      return {sample.Linear() + sample.Bias() +
              sample.Mlp("mlp", sample.DeepInputs(spec.dim()), spec.hidden_size() + 1, false)[0]};
    }
    case Model::kDeepfm: {
      const Model::DeepFm& spec = model.deepfm();
      return {sample.Linear() + sample.Bias() +
              Sum(ReferenceSample::PairDots(sample.Embeddings(spec.dim()))) +
              sample.Mlp("mlp", sample.DeepInputs(spec.dim()), spec.hidden_size() + 1, false)[0]};
    }
    case Model::kDlrm: {
      const Model::Dlrm& spec = model.dlrm();
      std::vector<Vector> vectors = sample.Embeddings(spec.dim());
      Vector top_inputs;
      if (batch.numeric_count > 0) {
        top_inputs = sample.Mlp("bottom", sample.numerics(), spec.bottom_size(), true);
        vectors.insert(vectors.begin(), top_inputs);
      }
      const Vector dots = ReferenceSample::PairDots(vectors);
      top_inputs.insert(top_inputs.end(), dots.begin(), dots.end());
      return sample.Mlp("top", top_inputs, spec.top_size() + 1, false);
    }
    case Model::kMlp:
      return sample.Mlp("mlp", sample.numerics(), model.mlp().hidden_size() + 1, false);
    case Model::kMatrixFactorization: {
      const Model::MatrixFactorization& spec = model.matrix_factorization();
      return {spec.mean() + sample.Linear() +
              Sum(ReferenceSample::PairDots(sample.Embeddings(spec.dim())))};
    }
    case Model::KIND_NOT_SET:
      break;
  }
  return {};
}

double ReferenceLossSum(const Model& model, Loss loss, const Batch& batch,
                        const ReferenceParameters& parameters) {
  double sum = 0;
  for (uint32_t s = 0; s < batch.samples; ++s) {
    const Vector outputs = ReferenceOutputs(model, batch, parameters, s);
    const float label = batch.labels[s];
    if (loss == SQUARED) {
      sum += (outputs[0] - label) * (outputs[0] - label) / 2;
    } else if (loss == LOGISTIC) {
      const double probability = 1 / (1 + std::exp(-outputs[0]));
      sum -= std::log(label > 0 ? probability : 1 - probability);
    } else {
      double normalizer = 0;
      for (const double output : outputs) normalizer += std::exp(output);
      sum -= std::log(std::exp(outputs[static_cast<size_t>(label)]) / normalizer);
    }
  }
  return sum;
}

}  // namespace pawl

// A Stan model that stays in memory: a C interface for ctypes, linked with the C++ that stanc makes of a program.
//
// Points are rows of C arrays, unconstrained, in double precision. Every function catches what Stan throws. Texts that are
// returned belong to the calling thread until its next call.

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <stan/callbacks/interrupt.hpp>
#include <stan/callbacks/logger.hpp>
#include <stan/callbacks/structured_writer.hpp>
#include <stan/callbacks/writer.hpp>
#include <stan/io/json/json_data.hpp>
#include <stan/mcmc/hmc/nuts/adapt_diag_e_nuts.hpp>
#include <stan/mcmc/hmc/nuts/diag_e_nuts.hpp>
#include <stan/model/gradient.hpp>
#include <stan/model/model_base.hpp>
#include <stan/services/util/run_adaptive_sampler.hpp>
#include <stan/services/util/run_sampler.hpp>

using stan::model::model_base;
using Vector = Eigen::VectorXd;
using Rows = Eigen::Map<const Vector>;

model_base &new_model(stan::io::var_context &data, unsigned int seed, std::ostream *messages);

namespace {

thread_local std::string text;

const char *kept(const std::string &given) {
  text = given;
  return text.c_str();
}

// The tape of reverse-mode differentiation is per thread; a thread's first use makes it.
void make_tape() { static thread_local stan::math::ChainableStack tape; }

// What Stan's samplers need of a model, counting evaluations of its gradient.
struct Counted {
  const model_base &model;
  mutable long gradients = 0;

  explicit Counted(const model_base &given) : model(given) {}

  template <bool propto, bool jacobian, typename T>
  T log_prob(Eigen::Matrix<T, -1, 1> &x, std::ostream *) const {
    ++gradients;
    return model.template log_prob<propto, jacobian, T>(x, nullptr);
  }
  size_t num_params_r() const { return model.num_params_r(); }
  void unconstrained_param_names(std::vector<std::string> &names, bool, bool) const {
    model.unconstrained_param_names(names, false, false);
  }
  // Draws are read from the diagnostics, where they are unconstrained.
  void constrained_param_names(std::vector<std::string> &, bool, bool) const {}
  template <typename R>
  void write_array(R &, std::vector<double> &, std::vector<int> &, std::vector<double> &, bool, bool,
                   std::ostream *) const {}
};

struct Enough : std::exception {};

// Called before every transition.
struct Limit : stan::callbacks::interrupt {
  const Counted &model;
  long most;
  Limit(const Counted &given, long limit) : model(given), most(limit) {}
  void operator()() override {
    if (model.gradients >= most)
      throw Enough();
  }
};

// lp, acceptance, step size, depth, leapfrogs, divergent, energy; then the position, momenta, gradients.
struct Draws : stan::callbacks::writer {
  long dim, row = 0;
  double *positions, *facts;
  Draws(long d, double *x, double *f) : dim(d), positions(x), facts(f) {}
  void operator()(const std::vector<double> &values) override {
    facts[3 * row] = values[1], facts[3 * row + 1] = values[5], facts[3 * row + 2] = values[3];
    std::copy_n(values.begin() + 7, dim, positions + row++ * dim);
  }
  using stan::callbacks::writer::operator();
};

} // namespace

extern "C" {

// A model with its data, or null and the reason.
void *parvibench_open(const char *data, const char **error) try {
  make_tape();
  std::istringstream stream(data);
  stan::json::json_data context(stream);
  return &new_model(context, 1, nullptr);
} catch (const std::exception &e) {
  *error = kept(e.what());
  return nullptr;
}

void parvibench_close(void *handle) { delete static_cast<model_base *>(handle); }

long parvibench_dim(void *handle) { return static_cast<model_base *>(handle)->num_params_r(); }

// Names, a line each: of unconstrained coordinates (0), of parameters (1), of these and what is computed from them (2).
const char *parvibench_names(void *handle, int kind) {
  const model_base &model = *static_cast<model_base *>(handle);
  std::vector<std::string> names;
  if (kind == 0)
    model.unconstrained_param_names(names, false, false);
  else
    model.constrained_param_names(names, kind == 2, kind == 2);
  std::string joined;
  for (const auto &name : names)
    joined += name + "\n";
  return kept(joined);
}

// Log densities (n) with the Jacobian, without constants, and gradients (n, dim) unless null. Where the program rejects a
// point, -infinity and NaN; returns the first message, or null.
const char *parvibench_evaluate(void *handle, long n, const double *x, double *values, double *gradients, int threads) {
  const model_base &model = *static_cast<model_base *>(handle);
  const long dim = model.num_params_r();
  std::vector<std::string> messages(threads);
  auto part = [&](int t) {
    make_tape();
    Vector at(dim), slope(dim);
    for (long i = n * t / threads; i < n * (t + 1) / threads; ++i) {
      at = Rows(x + i * dim, dim);
      try {
        if (gradients) {
          stan::model::gradient(model, at, values[i], slope);
        } else {
          stan::math::nested_rev_autodiff nested;
          Eigen::Matrix<stan::math::var, -1, 1> point(at);
          values[i] = model.log_prob_propto_jacobian(point, nullptr).val();
        }
      } catch (const std::exception &e) {
        values[i] = -std::numeric_limits<double>::infinity();
        slope.setConstant(std::numeric_limits<double>::quiet_NaN());
        if (messages[t].empty())
          messages[t] = e.what();
      }
      if (gradients)
        std::copy_n(slope.data(), dim, gradients + i * dim);
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back(part, t);
  part(0);
  for (auto &other : others)
    other.join();
  for (const auto &message : messages)
    if (!message.empty())
      return kept(message);
  return nullptr;
}

// Values (n, width) of parameters, with `all` of what is computed from them, too, at points (n, dim); an error, or null.
const char *parvibench_constrain(void *handle, long n, const double *x, int all, long width, double *values) try {
  make_tape();
  const model_base &model = *static_cast<model_base *>(handle);
  stan::rng_t rng = stan::services::util::create_rng(1, 1);
  for (long i = 0; i < n; ++i) {
    Vector at = Rows(x + i * parvibench_dim(handle), parvibench_dim(handle)), found;
    model.write_array(rng, at, found, all, all, nullptr);
    std::copy_n(found.data(), width, values + i * width);
  }
  return nullptr;
} catch (const std::exception &e) {
  return kept(e.what());
}

// Points (n, dim) of values (n, width) of parameters; an error, or null.
const char *parvibench_unconstrain(void *handle, long n, long width, const double *values, double *x) try {
  make_tape();
  const model_base &model = *static_cast<model_base *>(handle);
  for (long i = 0; i < n; ++i) {
    Vector found;
    model.unconstrain_array(Vector(Rows(values + i * width, width)), found, nullptr);
    std::copy_n(found.data(), parvibench_dim(handle), x + i * parvibench_dim(handle));
  }
  return nullptr;
} catch (const std::exception &e) {
  return kept(e.what());
}

// Transitions of one chain by Stan's NUTS with a diagonal metric, after `warmup` ones of its windowed adaptation from a unit
// metric, or with the given step size and inverse metric (dim), which adaptation replaces. Positions (draws, dim) and facts
// (draws, 3): acceptance, divergence, depth. Returns the number of gradients, negative if `limit` ended the chain.
long parvibench_nuts(void *handle, unsigned seed, unsigned chain, long warmup, long draws, int depth, double delta,
                     long limit, const double *start, double *step, double *metric, double *positions, double *facts) {
  make_tape();
  Counted model(*static_cast<model_base *>(handle));
  const long dim = model.num_params_r();
  stan::rng_t rng = stan::services::util::create_rng(seed, chain);
  stan::callbacks::logger logger;
  stan::callbacks::writer silent;
  stan::callbacks::structured_writer unread;
  Limit enough(model, limit);
  Draws written(dim, positions, facts);
  std::vector<double> x(start, start + dim);
  Vector scales = Rows(metric, dim);
  auto prepare = [&](auto &sampler) {
    sampler.set_metric(scales);
    sampler.set_nominal_stepsize(*step);
    sampler.set_max_depth(depth);
  };
  try {
    if (warmup > 0) {
      stan::mcmc::adapt_diag_e_nuts<Counted, stan::rng_t> sampler(model, rng);
      prepare(sampler);
      sampler.get_stepsize_adaptation().set_mu(std::log(10 * *step));
      sampler.get_stepsize_adaptation().set_delta(delta);
      sampler.set_window_params(warmup, 75, 50, 25, logger);
      stan::services::util::run_adaptive_sampler(sampler, model, x, warmup, draws, 1, 0, false, rng, enough, logger, silent,
                                                 written, unread);
      *step = sampler.get_nominal_stepsize();
      Eigen::Map<Vector>(metric, dim) = sampler.z().inv_e_metric_;
    } else {
      stan::mcmc::diag_e_nuts<Counted, stan::rng_t> sampler(model, rng);
      prepare(sampler);
      stan::services::util::run_sampler(sampler, model, x, 0, draws, 1, 0, false, rng, enough, logger, silent, written);
    }
  } catch (const Enough &) {
    return -model.gradients;
  }
  return written.row < draws ? -model.gradients : model.gradients;
}
}

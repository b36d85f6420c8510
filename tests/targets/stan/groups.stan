data {
  int<lower=1> n;
  int<lower=1> J;
  array[n] int<lower=1, upper=J> group;
  array[n] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector<offset=mu, multiplier=tau>[J] theta;
  matrix[2, J] w;
}
model {
  mu ~ normal(0, 1);
  tau ~ cauchy(0, 1);
  theta ~ normal(mu, tau);
  to_vector(w) ~ std_normal();
  y ~ poisson_log(theta[group] + w[1, group]' - 0.5 * w[2, group]');
}

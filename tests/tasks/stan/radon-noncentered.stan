data {
  int N;
  int J;
  array[N] int county_idx;
  vector[N] floor_measure;
  vector[N] log_radon;
}
parameters {
  real<lower=0> sigma_y;
  real<lower=0> sigma_alpha;
  real<lower=0> sigma_beta;
  vector[J] alpha_raw;
  vector[J] beta_raw;
  real mu_alpha;
  real mu_beta;
}
model {
  vector[J] alpha = mu_alpha + sigma_alpha * alpha_raw;
  vector[J] beta = mu_beta + sigma_beta * beta_raw;
  [sigma_y, sigma_alpha, sigma_beta] ~ std_normal();
  [mu_alpha, mu_beta] ~ normal(0, 10);
  alpha_raw ~ std_normal();
  beta_raw ~ std_normal();
  log_radon ~ normal(alpha[county_idx] + beta[county_idx] .* floor_measure, sigma_y);
}

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
  vector[J] alpha;
  vector[J] beta;
  real mu_alpha;
  real mu_beta;
}
model {
  [sigma_y, sigma_alpha, sigma_beta] ~ std_normal();
  [mu_alpha, mu_beta] ~ normal(0, 10);
  alpha ~ normal(mu_alpha, sigma_alpha);
  beta ~ normal(mu_beta, sigma_beta);
  log_radon ~ normal(alpha[county_idx] + beta[county_idx] .* floor_measure, sigma_y);
}

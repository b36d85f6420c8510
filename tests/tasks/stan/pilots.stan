data {
  int N;
  int n_groups;
  int n_scenarios;
  array[N] int group_id;
  array[N] int scenario_id;
  vector[N] y;
}
parameters {
  vector[n_groups] a;
  vector[n_scenarios] b;
  real mu_a;
  real mu_b;
  real<lower=0, upper=100> sigma_a;
  real<lower=0, upper=100> sigma_b;
  real<lower=0, upper=100> sigma_y;
}
model {
  mu_a ~ std_normal();
  mu_b ~ std_normal();
  a ~ normal(10 * mu_a, sigma_a);
  b ~ normal(10 * mu_b, sigma_b);
  y ~ normal(a[group_id] + b[scenario_id], sigma_y);
}

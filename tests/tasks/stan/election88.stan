data {
  int N;
  int n_age;
  int n_edu;
  int n_age_edu;
  int n_state;
  int n_region_full;
  array[N] int age;
  array[N] int edu;
  array[N] int age_edu;
  array[N] int state;
  array[N] int region_full;
  vector[N] black;
  vector[N] female;
  vector[N] v_prev_full;
  array[N] int y;
}
parameters {
  vector[n_age] a;
  vector[n_edu] b;
  vector[n_age_edu] c;
  vector[n_state] d;
  vector[n_region_full] e;
  vector[5] beta;
  real<lower=0, upper=100> sigma_a;
  real<lower=0, upper=100> sigma_b;
  real<lower=0, upper=100> sigma_c;
  real<lower=0, upper=100> sigma_d;
  real<lower=0, upper=100> sigma_e;
}
model {
  a ~ normal(0, sigma_a);
  b ~ normal(0, sigma_b);
  c ~ normal(0, sigma_c);
  d ~ normal(0, sigma_d);
  e ~ normal(0, sigma_e);
  beta ~ normal(0, 100);
  y ~ bernoulli_logit(beta[1] + beta[2] * black + beta[3] * female + beta[4] * v_prev_full
                      + beta[5] * female .* black + a[age] + b[edu] + c[age_edu] + d[state] + e[region_full]);
}

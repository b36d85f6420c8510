data {
  int<lower=1> n;
  array[n] int<lower=1> trials;
  array[n] int<lower=0> hits;
}
parameters {
  real<lower=0, upper=1> mean_rate;
  real<upper=9> log_size;
  vector<lower=0, upper=1>[n] rate;
}
model {
  log_size ~ normal(2, 1);
  rate ~ beta(mean_rate * exp(log_size), (1 - mean_rate) * exp(log_size));
  hits ~ binomial(trials, rate);
}

data {
  int<lower=1> n;
  vector<lower=0>[n] y;
}
parameters {
  positive_ordered[2] mu;
  vector<lower=0>[2] sigma;
  real<lower=0, upper=1> weight;
}
model {
  mu ~ gamma(2, 0.5);
  sigma ~ inv_gamma(3, 2);
  weight ~ beta(2, 2);
  for (i in 1 : n) {
    target += log_mix(weight, normal_lpdf(y[i] | mu[1], sigma[1]), normal_lpdf(y[i] | mu[2], sigma[2]));
  }
}

data {
  int N;
  vector[N] y;
}
parameters {
  ordered[2] mu;
  vector<lower=0>[2] sigma;
  real<lower=0, upper=1> theta;
}
model {
  mu ~ normal(0, 2);
  sigma ~ normal(0, 2);
  theta ~ beta(5, 5);
  for (i in 1 : N) {
    target += log_sum_exp(log(theta) + normal_lpdf(y[i] | mu[1], sigma[1]),
                          log1m(theta) + normal_lpdf(y[i] | mu[2], sigma[2]));
  }
}

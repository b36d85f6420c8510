data {
  int K;
  int T;
  vector[T] y;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 10);
  beta ~ normal(0, 10);
  sigma ~ cauchy(0, 2.5);
  for (t in K + 1 : T) {
    y[t] ~ normal(alpha + dot_product(beta, reverse(y[t - K : t - 1])), sigma);
  }
}

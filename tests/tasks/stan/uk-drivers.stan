data {
  int n;
  vector[n] y;
  vector[n] x;
  vector[n] w;
}
transformed data {
  real low = mean(y) - 3 * sd(y);
  real high = mean(y) + 3 * sd(y);
}
parameters {
  vector<lower=low, upper=high>[n] mu;
  vector[n] seasonal;
  real beta;
  real lambda;
  positive_ordered[3] sigma;
}
model {
  sigma ~ student_t(4, 0, 1);
  mu[2 : ] ~ normal(mu[ : n - 1], sigma[2]);
  for (t in 12 : n) {
    sum(seasonal[t - 11 : t]) ~ normal(0, sigma[1]);
  }
  y ~ normal(mu + beta * x + lambda * w + seasonal, sigma[3]);
}

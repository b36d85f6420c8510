data {
  int K;
  int N;
  vector[N] y;
}
parameters {
  simplex[K] theta;
  vector[K] mu;
  vector<lower=0, upper=10>[K] sigma;
}
model {
  mu ~ normal(0, 10);
  for (i in 1 : N) {
    vector[K] terms = log(theta);
    for (k in 1 : K) {
      terms[k] += normal_lpdf(y[i] | mu[k], sigma[k]);
    }
    target += log_sum_exp(terms);
  }
}

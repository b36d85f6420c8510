data {
  int N;
  array[N] int switched;
  vector[N] dist;
  vector[N] arsenic;
  vector[N] educ;
}
parameters {
  real alpha;
  vector[3] beta;
}
model {
  switched ~ bernoulli_logit(alpha + beta[1] * dist / 100 + beta[2] * arsenic + beta[3] * educ / 4);
}
